"""Statements about a text and relations of two texts: entailed, contradicted, answered, summarised."""

from __future__ import annotations

from collections.abc import Sequence

from training import wordings as w
from training.calls import CHOICES, ask, ask_pair, choose_pair
from training.corpus import Row, cut
from training.units.builder import Builder, Maker, Random, Unit, noun
from training.wordings import Wordings

NLI_NUMBER = {"entailment": 0, "contradiction": 1, "neutral": 2}
TRIES = 100
"""Texts that are drawn until one has both a statement that follows and one that contradicts it."""
TWO_COLUMNS = 0.3
"""Share of the pairs that are asked as two columns of one row."""
UNDECIDED_FIRST = 0.3
"""How often a wrong answer is taken from a neutral statement rather than from the opposite one."""


def nli_rows(builder: Builder, rng: Random) -> list[Row]:
    """A premise with up to three statements about it."""
    rows = builder.corpus.rows("nli", "nli")
    groups = builder.corpus.by_label.setdefault(("nli", "by text"), {})
    if not groups:
        for row in rows:
            groups.setdefault(row.text, []).append(row)
    return groups[rng.choice(rows).text]


def nli_pairs(builder: Builder, rng: Random) -> Unit:
    """Entails, contradicts or neither, as pairs of a join, either side the anchor, or as two columns of a row."""
    rows = [row for row in nli_rows(builder, rng) if len(row.text) < 400]
    which = rng.choices((0, 1, 2), (5, 5, 1))[0]
    wordings = (w.ENTAILS, w.CONTRADICTS, w.UNDECIDED)[which]
    part = wordings[5::6] if builder.held_out else [t for n, t in enumerate(wordings) if n % 6 != 5]
    template = rng.choice(part or wordings)
    anchor = None if rng.random() < TWO_COLUMNS else rng.choice((0, 0, 1))
    chosen = balanced(rows, which, rng)
    unit = [
        ask_pair(template, (row.text, row.text2 or ""), anchor, float(NLI_NUMBER[row.label] == which), f"nli {which}")
        for row in (chosen[:1] if anchor == 1 else chosen)
    ]
    return unit or nli_statements(builder, rng)


def balanced(rows: Sequence[Row], which: int, rng: Random) -> list[Row]:
    """Rows of the relation `which` and as many of others, in any order; the opposite rather than the undecided one."""
    right = [row for row in rows if NLI_NUMBER[row.label] == which]
    wrong = [row for row in rows if NLI_NUMBER[row.label] != which]
    wrong.sort(key=lambda row: rng.random() + (row.label == "neutral"))
    if len(wrong) > 1 and rng.random() < UNDECIDED_FIRST:
        wrong.reverse()
    chosen = right + wrong[: max(len(right), 1)]
    rng.shuffle(chosen)
    return chosen


def nli_statements(builder: Builder, rng: Random) -> Unit:
    """Statements as questions about one document."""
    unit: Unit = []
    doc = noun(rng, "the passage")
    for row in nli_rows(builder, rng):
        text = cut(row.text, 500)
        truth = NLI_NUMBER[row.label]
        if truth == 2 and rng.random() < 0.6:
            continue
        for wordings, right in ((w.STATED, truth == 0), (w.DENIED, truth == 1)):
            negated_means_open = wordings is w.DENIED and truth == 2
            if rng.random() < 0.65 and not negated_means_open:
                unit.append(builder.question(wordings, right, rng, doc, "nli statement", text, x=row.text2 or ""))
    return unit or nli_pairs(builder, rng)


def nli_contrast(builder: Builder, rng: Random) -> Unit:
    """A statement that follows from a text and one that contradicts it, both asked in the same straight wordings."""
    rows: dict[str, Row] = {}
    for _ in range(TRIES):
        rows = {row.label: row for row in nli_rows(builder, rng)}
        if "entailment" in rows and "contradiction" in rows:
            break
    else:
        return nli_statements(builder, rng)  # the sets hold no such text, or hardly any
    doc, unit = noun(rng, "the passage"), []
    stated = rng.random() < 0.75
    for _ in range(2):
        template = builder.wording(w.STATED if stated else w.DENIED, rng, False)
        for label in rng.sample(("entailment", "contradiction"), 2):
            row = rows[label]
            question = template.format(doc=doc, x=row.text2)
            truth = float((label == "entailment") == stated)
            unit.append(ask(question, cut(row.text, 300), truth, "nli contrast"))
    return unit


def nli_choice(builder: Builder, rng: Random) -> Unit:
    """The relation of two texts as a choice."""
    row = rng.choice(nli_rows(builder, rng))
    names = list(rng.choice(w.RELATION_NAMES))
    right = names[NLI_NUMBER[row.label]]
    if row.label != "neutral" and rng.random() < 0.4:
        names = names[:2]
    rng.shuffle(names)
    scoring = rng.choice(CHOICES)
    texts = (cut(row.text, 400), row.text2 or "")
    return [
        choose_pair(
            rng.choice(w.RELATION_CHOICE),
            texts,
            rng.choice((0, 1)),
            names,
            names.index(right),
            f"nli {scoring}",
            scoring,
        )
    ]


def own_question(file: str, task: str, wordings: Wordings, chars: int) -> Maker:
    """The row's own question or term, answered yes or no."""

    def make(builder: Builder, rng: Random) -> Unit:
        groups = builder.corpus.labelled(file, task)
        label = rng.choice([name for name in groups if name in ("yes", "no")])
        row = rng.choice(groups[label])
        text, doc = cut(row.text, chars), noun(rng, "the passage")
        count, x = rng.choice((1, 2)), row.question or ""
        return [builder.question(wordings, label == "yes", rng, doc, task, text, x=x) for _ in range(count)]

    return make


PAIR_WORDINGS = {
    "answer_relevance": (
        "Does {1} answer the question {0}?",
        "Is {1} relevant to the question {0}?",
        "Would {1} help somebody who asks {0}?",
        "Is the question {0} answered by {1}?",
    ),
    "note_matches_conversation": (
        "Does the note {1} summarise the conversation {0}?",
        "Is {1} about the same visit as {0}?",
        "Does {1} fit {0}?",
        "Was the note {1} written about {0}?",
    ),
    "conclusion_belongs_to_abstract": (
        "Is {1} the conclusion of the study {0}?",
        "Does the conclusion {1} fit the study {0}?",
        "Do {0} and {1} come from the same paper?",
        "Does {0} lead to {1}?",
    ),
}


def yes_no_pair(file: str, task: str, chars: int) -> Maker:
    """Two texts of which a relation holds or not."""

    def make(builder: Builder, rng: Random) -> Unit:
        groups = builder.corpus.labelled(file, task)
        label = rng.choice(list(groups))
        row = rng.choice(groups[label])
        texts = (cut(row.text, chars), cut(row.text2 or "", chars))
        truth = float(label in ("yes", "relevant"))
        return [ask_pair(rng.choice(PAIR_WORDINGS[task]), texts, rng.choice((0, 1)), truth, task)]

    return make
