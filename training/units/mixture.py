"""Which tasks are drawn, how often, and in which order a run meets them."""

from __future__ import annotations

from training import wordings as w
from training.label_tasks import LABEL_TASKS
from training.units.builder import (
    ALL_TASKS,
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

MIXTURE: tuple[tuple[Maker, float, float], ...] = (
    (sentiment, 24, 12),
    (long_review, 0.4, 0.4),
    (aspects, 2, 2),
    (intent_questions, 36, 22),
    (intent_choice, 15, 28),
    (intent_list, 0.6, 0.6),
    (intent_join, 8, 7),
    (intent_join_reversed, 2.5, 4),
    (nli_contrast, 0, 18),
    (nli_pairs, 5, 22),
    (nli_statements, 8, 8),
    (nli_choice, 3, 4),
    (own_question("yes_no_passages", "strategyqa_yes_no", w.PLAIN, 400), 1.2, 1.2),
    (own_question("yes_no_passages", "pubmedqa_yes_no", w.PLAIN, 700), 0.3, 0.3),
    (own_question("yes_no_passages", "abstract_subject_yes_no", w.ABOUT, 500), 1, 1),
    (own_question("health_texts", "health_text_subject", w.ABOUT, 450), 1, 1),
    (own_question("legal", "nda_clause", w.STATED, 500), 0.3, 0.3),
    (yes_no_pair("health_texts", "answer_relevance", 300), 0.6, 0.6),
    (yes_no_pair("dialogues", "note_matches_conversation", 500), 0.2, 0.2),
    (yes_no_pair("yes_no_passages", "conclusion_belongs_to_abstract", 700), 0.2, 0.2),
    (drug_mentions, 1.2, 1.2),
    (agent_runs, 0.2, 0.2),
    *((label_questions(task), task.share * 0.45, task.share * 0.45) for task in LABEL_TASKS),
)
"""What is drawn, and how often: before relations of two texts are taught, and after; shares of any sum."""


def draw(builder: Builder, rng: Random) -> Unit:
    """One unit of a task drawn by share, as far as the curriculum is."""
    if rng.random() >= ramp(builder.unit, *OTHER_TASKS):
        return opposite_opinions(builder, rng)
    if rng.random() >= ramp(builder.unit, *ALL_TASKS):
        return intent_questions(builder, rng)
    taught = rng.random() < ramp(builder.unit, *RELATIONS)
    makers, before, after = zip(*MIXTURE, strict=True)
    chosen: Maker = rng.choices(makers, after if taught else before)[0]
    return chosen(builder, rng)
