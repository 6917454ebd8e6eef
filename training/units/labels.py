"""Labelled texts of the table in `training.label_tasks`, mentions in reports, and long talks with an agent."""

from __future__ import annotations

from training.calls import CHOICES, ask_pair, choose
from training.corpus import Row, cut
from training.label_tasks import LABEL_TASKS, LabelTask
from training.units.builder import Builder, Maker, Random, Unit, noun
from training.wordings import Wordings


def labels_of(row: Row, task: LabelTask) -> list[str]:
    """The labels that apply to the row."""
    if task.name == "emotion":
        return [str(label) for label in row.extra["labels"]]
    return row.label.split("; ")


def label_questions(task: LabelTask) -> Maker:
    """Questions about the labels of a task, and a choice among them."""

    def make(builder: Builder, rng: Random) -> Unit:
        groups = builder.corpus.labelled(task.file, task.name)
        row = rng.choice(groups[rng.choice(list(groups))])
        applies = labels_of(row, task)
        known = sorted({label for key in groups for label in key.split("; ")})
        asked_about = [label for label in known if task.names.get(label, label)]
        right = [label for label in applies if label in asked_about]
        wrong = [label for label in asked_about if label not in applies]
        doc, text = noun(rng, *task.nouns), cut(row.text, task.chars)
        chosen = ([rng.choice(right)] * rng.choice((1, 2)) if right else []) + rng.sample(wrong, min(2, len(wrong)))
        unit: Unit = []
        for label in chosen:
            x = task.names.get(label, label)
            unit.append(builder.question(task.wordings, label in applies, rng, doc, task.name, text, x=x))
        if task.choose and task.exclusive and right and len(asked_about) > 1 and rng.random() < 0.4:
            names = [
                task.names.get(label, label)
                for label in rng.sample(wrong, min(len(wrong), rng.choice((1, 2, 3, 5, 7, 9))))
            ]
            answer = task.names.get(right[0], right[0])
            names.append(answer)
            rng.shuffle(names)
            scoring = rng.choice(CHOICES)
            unit.append(
                choose(
                    rng.choice(task.choose),
                    text,
                    names,
                    names.index(answer),
                    f"choice {task.name} {scoring}",
                    scoring=scoring,
                )
            )
        return unit

    return make


def drug_mentions(builder: Builder, rng: Random) -> Unit:
    """Does a report mention this effect or drug: of itself, or of another report."""
    rows = builder.corpus.rows("drug_reports", "drug_event")
    row, other, third = rng.choice(rows), rng.choice(rows), rng.choice(rows)
    kind = rng.choice(("drug", "effect", "effect"))
    own = [str(term) for term in row.extra.get(kind, [])]
    foreign = [
        str(t) for r in (other, third) for t in r.extra.get(kind, [])[:1] if str(t).lower() not in row.text.lower()
    ]
    if not own or not foreign:
        return label_questions(next(task for task in LABEL_TASKS if task.name == "drug_event"))(builder, rng)
    terms = [(rng.choice(own), True), *((term, False) for term in foreign)]
    if rng.random() < 0.4:
        template = rng.choice(
            (
                "Does the report {0} mention the reaction {1}?",
                "Is {1} mentioned in {0}?",
                "Did the patient in {0} have {1}?",
                "Does {0} tell of {1}?",
            )
        )
        return [ask_pair(template, (row.text, term), 0, float(truth), "drug join") for term, truth in terms]
    doc, unit = noun(rng, "the report"), []
    for term, truth in terms:
        unit.append(builder.question(MENTIONED, truth, rng, doc, "drug mentions", row.text, x=term))
    return unit


MENTIONED = Wordings(
    (
        "Does {doc} mention {x}?",
        "Is {x} mentioned?",
        "Does it concern {x}?",
        "Is there a word about {x}?",
        "{x}",
        "Does {x} come up in {doc}?",
    ),
    ("Is {x} not mentioned in {doc}?", "Does {doc} say nothing about {x}?"),
)


def agent_runs(builder: Builder, rng: Random) -> Unit:
    """Long talks with an agent: did a tool fail, which tools were called."""
    row = rng.choice(builder.corpus.rows("dialogues", "agent_conversation_action"))
    text, doc = row.text[-2600:], noun(rng, "the conversation", "the trace")
    failed = "error" in text.lower()
    unit = [builder.question(TOOL_FAILED, failed, rng, doc, "agent", text) for _ in range(2)]
    calls = row.extra.get("tools_called", [])
    for tool in ("book_reservation", "cancel_reservation", "transfer_to_human_agents", "calculate"):
        if (tool in calls) == (tool in text):
            unit.append(builder.question(TOOL_CALLED, tool in calls, rng, doc, "agent", text, x=tool.replace("_", " ")))
    return unit


TOOL_FAILED = Wordings(
    (
        "Did a tool call fail?",
        "Is there an error in {doc}?",
        "Did a command report an error?",
        "Did something go wrong?",
        "A tool returned an error.",
        "Was there a failure?",
    ),
    ("Did every tool call succeed?", "Is {doc} free of errors?", "Did all commands work?"),
)
TOOL_CALLED = Wordings(
    ("Did the agent {x}?", "Was the tool '{x}' called?", "Does {doc} show that the agent did this: {x}?"),
    ("Did the agent not {x}?", "Was the tool '{x}' never called?"),
)
