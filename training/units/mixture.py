"""Which tasks are drawn, how often, and in which order a run meets them."""

from __future__ import annotations

from training import wordings as w
from training.label_tasks import LABEL_TASKS
from training.units.builder import (
    ALL_TASKS,
    FOCUS,
    LAST_PART,
    OTHER_TASKS,
    RELATIONS,
    Builder,
    Maker,
    Random,
    Unit,
    ramp,
)
from training.units.intents import (
    intent_choice,
    intent_join,
    intent_join_reversed,
    intent_list,
    intent_questions,
)
from training.units.labels import agent_runs, drug_mentions, label_questions
from training.units.sentiment import aspects, long_review, opposite_opinions, sentiment
from training.units.statements import nli_choice, nli_contrast, nli_pairs, nli_statements, own_question, yes_no_pair

MIXTURE: tuple[tuple[Maker, float], ...] = (
    (sentiment, 24),
    (long_review, 0.8),
    (aspects, 4),
    (intent_questions, 22),
    (intent_choice, 14),
    (intent_list, 1.2),
    (intent_join, 6),
    (intent_join_reversed, 5),
    (nli_pairs, 9),
    (nli_statements, 11),
    (nli_choice, 4),
    (own_question("yes_no_passages", "strategyqa_yes_no", w.PLAIN, 400), 2.5),
    (own_question("yes_no_passages", "pubmedqa_yes_no", w.PLAIN, 700), 0.5),
    (own_question("yes_no_passages", "abstract_subject_yes_no", w.ABOUT, 500), 2),
    (own_question("health_texts", "health_text_subject", w.ABOUT, 450), 2),
    (own_question("legal", "nda_clause", w.STATED, 500), 0.5),
    (yes_no_pair("health_texts", "answer_relevance", 300), 1.2),
    (yes_no_pair("dialogues", "note_matches_conversation", 500), 0.4),
    (yes_no_pair("yes_no_passages", "conclusion_belongs_to_abstract", 700), 0.4),
    (drug_mentions, 2.5),
    (agent_runs, 0.4),
    *((label_questions(task), task.share * 0.9) for task in LABEL_TASKS),
)
"""What is drawn, and how often."""
FOCUSED_SHARES: dict[Maker, float] = {
    sentiment: 24,
    intent_questions: 36,
    intent_choice: 15,
    intent_join: 8,
    nli_pairs: 5,
    nli_statements: 10,
    nli_choice: 3,
}
SHARES_OF_RELATIONS: dict[Maker, float] = {
    sentiment: 11,
    aspects: 2,
    intent_questions: 24,
    intent_choice: 10,
    intent_list: 1.5,
    intent_join: 7,
    intent_join_reversed: 4,
    nli_contrast: 22,
    nli_pairs: 26,
    nli_statements: 8,
    nli_choice: 4,
}
OTHERS_IN_FOCUS = 0.5
"""What the shares become from unit `FOCUS` and from `RELATIONS` on, and the factor for those of the other tasks."""
CONTRAST_SHARE = 0.22
"""Between `LAST_PART` and `RELATIONS`, this share of the units holds statements that do and do not follow."""


def draw(builder: Builder, rng: Random) -> Unit:
    """One unit of a task drawn by share, as far as the curriculum is."""
    if rng.random() >= ramp(builder.unit, *OTHER_TASKS):
        return opposite_opinions(builder, rng)
    if rng.random() >= ramp(builder.unit, *ALL_TASKS):
        return intent_questions(builder, rng)
    if LAST_PART <= builder.unit < RELATIONS and rng.random() < CONTRAST_SHARE:
        return nli_contrast(builder, rng)
    shares = shares_at(builder.unit)
    chosen: Maker = rng.choices(list(shares), list(shares.values()))[0]
    return chosen(builder, rng)


def shares_at(unit: int) -> dict[Maker, float]:
    """How often each maker is drawn for the unit of this number, in shares of any sum."""
    mixture = dict(MIXTURE)
    if unit < FOCUS:
        return mixture
    focus = FOCUSED_SHARES if unit < RELATIONS else SHARES_OF_RELATIONS
    return {maker: OTHERS_IN_FOCUS * share for maker, share in mixture.items()} | focus
