"""Requests and their intents: yes or no, one of many, and joined to a table of intents."""

from __future__ import annotations

import math

from training import wordings as w
from training.calls import ask, ask_pair, choose
from training.corpus import Row, held_out_intent
from training.intent_phrases import NAMES, PHRASES
from training.units.builder import Builder, Random, Unit, noun

INTENT_TASKS = ("clinc_intent", "clinc_intent", "hwu_intent", "hwu_intent", "snips_intent")
NONE_NAMES = ("none of these", "other", "something else", "none of the above")


def intent_words(rng: Random, task: str, label: str) -> tuple[str, str]:
    """(name, phrase) of an intent."""
    return NAMES.get(label, label), PHRASES[task][label]


def intent_labels(builder: Builder, task: str) -> list[str]:
    """Intents that may be asked about."""
    labels = [label for label in builder.corpus.labelled("intents", task) if label != "out of scope"]
    return labels if builder.held_out else [label for label in labels if not held_out_intent(label)]


def intent_row(builder: Builder, rng: Random, task: str) -> tuple[str, Row]:
    """A request and its intent; held-out intents come half of the time where they may come at all."""
    groups = builder.corpus.labelled("intents", task)
    labels = intent_labels(builder, task)
    unseen = [label for label in labels if held_out_intent(label)]
    if unseen and rng.random() < 0.5:
        labels = unseen
    elif task == "clinc_intent" and rng.random() < 0.05:
        labels = ["out of scope"]
    label = rng.choice(labels)
    return label, rng.choice(groups[label])


def near_intents(
    builder: Builder, rng: Random, task: str, label: str, count: int, near_share: float = 0.5
) -> list[str]:
    """Wrong intents, `near_share` of them of the same domain where there are such."""
    groups = builder.corpus.labelled("intents", task)
    others = [other for other in intent_labels(builder, task) if other != label]
    domain = groups[label][0].extra.get("domain")
    near = [other for other in others if domain and groups[other][0].extra.get("domain") == domain]
    chosen = [] if builder.easy else rng.sample(near, min(len(near), math.ceil(count * near_share)))
    if builder.easy:
        others = [other for other in others if other not in near]
    rest = [other for other in others if other not in chosen]
    chosen += rng.sample(rest, min(len(rest), count - len(chosen)))
    rng.shuffle(chosen)
    return chosen


def intent_questions(builder: Builder, rng: Random) -> Unit:
    """Is it this intent, yes or no: right and wrong ones, by name and by phrase."""
    task = rng.choice(INTENT_TASKS)
    label, row = intent_row(builder, rng, task)
    doc = noun(rng, "the message", "the request", "the query")
    asked = rng.choice((2, 4, 4, 6))
    right = 0 if label == "out of scope" else asked // 2
    labels = [label] * right + near_intents(builder, rng, task, label, asked - right)
    unit: Unit = []
    for number, other in enumerate(labels):
        name, phrase = intent_words(rng, task, other)
        by_name = rng.random() < 0.6
        wordings, x = (w.INTENT_NAME, name) if by_name else (w.INTENT_PHRASE, phrase)
        unit.append(builder.question(wordings, number < right, rng, doc, f"intent {task}", row.text, x=x))
    rng.shuffle(unit)
    return unit


def intent_options(
    builder: Builder, rng: Random, task: str, label: str, count: int
) -> tuple[list[str], list[str | None] | None, list[str]]:
    """(option names, descriptions or None, intents in the same order); none-of-these has the intent ""."""
    with_none = label == "out of scope" or rng.random() < 0.15
    missing = with_none and (label == "out of scope" or rng.random() < 0.5)
    near_share = rng.choice((0.5, 1.0))
    intents = near_intents(builder, rng, task, label, count - 1, near_share) + ([] if missing else [label])
    if with_none:
        intents.append("")
    rng.shuffle(intents)
    style = rng.choice(("name", "name", "phrase", "described"))
    none_name = rng.choice(NONE_NAMES)
    pairs = [intent_words(rng, task, intent) if intent else (none_name, none_name) for intent in intents]
    names = [phrase if style == "phrase" else name for name, phrase in pairs]
    described = [None if name == phrase else phrase for name, phrase in pairs] if style == "described" else None
    if len(set(names)) < len(names):
        names = [
            f"{name}" if names.index(name) == number else f"{name} ({intent})"
            for number, (name, intent) in enumerate(zip(names, intents, strict=True))
        ]
    return names, described, intents


def intent_choice(builder: Builder, rng: Random) -> Unit:
    """Which intent of 2 to 32, by the decision head and sometimes by letters too."""
    task = rng.choice(INTENT_TASKS)
    label, row = intent_row(builder, rng, task)
    count = rng.choice((2, 3, 4, 6, 8, 8, 8, 12, 16, 24, 32))
    names, described, intents = intent_options(builder, rng, task, label, count)
    target = intents.index(label if label in intents else "")
    question = rng.choice(w.INTENT_CHOICE)
    unit = [
        choose(
            question,
            row.text,
            names,
            target,
            f"intent choice {len(names)}",
            scoring="decision_choice",
            descriptions=described,
        )
    ]
    if count <= 12 and rng.random() < 0.1:
        unit.append(
            choose(
                question,
                row.text,
                names,
                target,
                f"intent letters {len(names)}",
                scoring="letters",
                descriptions=described,
            )
        )
    return unit


def intent_list(builder: Builder, rng: Random) -> Unit:
    """A long list before several requests, answered by letter: the layout of long lists."""
    task = rng.choice(("clinc_intent", "hwu_intent"))
    labels = intent_labels(builder, task)
    intents = rng.sample(labels, min(len(labels), rng.choice((20, 26, 34, 46))))
    groups = builder.corpus.labelled("intents", task)
    names = [intent_words(rng, task, intent)[0] for intent in intents]
    if len(set(names)) < len(names):
        names = intents
    question, unit = rng.choice(w.INTENT_CHOICE), []
    for target in rng.sample(range(len(intents)), 6):
        row = rng.choice(groups[intents[target]])
        unit.append(
            choose(question, row.text, names, target, "intent list letters", scoring="letters", layout="question_first")
        )
    return unit


def intent_join(builder: Builder, rng: Random) -> Unit:
    """A message joined to intents."""
    task = rng.choice(INTENT_TASKS)
    label, row = intent_row(builder, rng, task)
    if label == "out of scope":
        return intent_questions(builder, rng)
    template = rng.choice(w.INTENT_JOIN)
    labels = [label, *near_intents(builder, rng, task, label, rng.choice((2, 3)))]
    if rng.random() < 0.7:
        labels.insert(0, label)
    unit = []
    for number, other in enumerate(labels):
        words = intent_words(rng, task, other)
        word = words[number % 2] if other == label else rng.choice(words)
        unit.append(ask_pair(template, (row.text, word), 0, float(other == label), "intent join"))
    return unit


def intent_join_reversed(builder: Builder, rng: Random) -> Unit:
    """An intent joined to messages, or a question asked of several messages in the question_first layout."""
    task = rng.choice(INTENT_TASKS)
    label = rng.choice(intent_labels(builder, task))
    groups = builder.corpus.labelled("intents", task)
    rows = [(rng.choice(groups[label]), 1.0) for _ in range(3)]
    rows += [(rng.choice(groups[other]), 0.0) for other in near_intents(builder, rng, task, label, 3)]
    name, phrase = intent_words(rng, task, label)
    if rng.random() < 0.5:
        template, word = rng.choice(w.INTENT_JOIN), rng.choice((name, phrase))
        return [ask_pair(template, (row.text, word), 1, truth, "intent join") for row, truth in rows]
    by_name, negated = rng.random() < 0.6, rng.random() < 0.3
    wordings, x = (w.INTENT_NAME, name) if by_name else (w.INTENT_PHRASE, phrase)
    question = builder.wording(wordings, rng, negated).format(doc=noun(rng, "the message"), x=x)
    return [
        ask(question, row.text, 1 - truth if negated else truth, "intent question_first", layout="question_first")
        for row, truth in rows
    ]
