"""A plan in words, from the source to the result, as one would explain it to a colleague."""

from __future__ import annotations

from collections.abc import Iterator

from quail_frames.optimizer.rules.order_calls import passing_share
from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.logical import (
    ANSWER,
    Ask,
    Expression,
    Filter,
    Join,
    Node,
    Project,
    Select,
    Slice,
    Source,
    WithColumns,
    inputs,
)

CALL_NAMES = {"AiIf": "ai_if", "AiScore": "ai_score", "AiClassify": "ai_classify"}
_LONGEST = 70


def explain(written: Node, planned: Node | None = None) -> str:
    """The query as written and, where given, as planned."""
    parts = ["As written", *_numbered(written)]
    if planned is not None:
        parts += ["", "As planned", *_numbered(planned)]
    return "\n".join(parts)


def describe_call(call: AiCall) -> str:
    """A call in short: `ai_if("Is {review} positive?")`."""
    names = tuple(f"{{{name}}}" for name in call.columns)
    asked = call.template.render(names) if call.template.inputs else f"{names[0]}: {call.template.render(())}"
    asked = " ".join(asked.split())
    labels = call.labels if isinstance(call, AiClassify) else ()
    shown = f", {list(labels[:4])}{'…' if len(labels) > 4 else ''}" if labels else ""
    return f'{CALL_NAMES[call.kind]}("{asked if len(asked) <= _LONGEST else asked[: _LONGEST - 1] + "…"}"{shown})'


def _numbered(plan: Node) -> Iterator[str]:
    for number, lines in enumerate(_steps(plan), start=1):
        yield f"{number:3d}. {lines[0]}"
        yield from (f"     {line}" for line in lines[1:])


def _steps(node: Node) -> list[list[str]]:
    """The steps below the node and its own, each as lines."""
    if isinstance(node, Join):
        right = [f"{number}. {lines[0]}" for number, lines in enumerate(_steps(node.right), start=1)]
        return [*_steps(node.left), [f"{node.text}, with", *(f"  {line}" for line in right)]]
    below = [step for each in inputs(node) for step in _steps(each)]
    return [*below, _words(node)]


def _words(node: Node) -> list[str]:
    if isinstance(node, Source):
        return [f"read {node.text}"]
    if isinstance(node, Filter):
        return ["keep rows where", *_listed(node.predicates)]
    if isinstance(node, WithColumns):
        return ["add columns", *_listed(node.expressions)]
    if isinstance(node, Select):
        return ["take columns", *_listed(node.expressions)]
    if isinstance(node, Project):
        return ["keep columns " + ", ".join(_plain(node.columns))]
    if isinstance(node, Slice):
        behind = f" behind the first {node.offset:,}" if node.offset else ""
        return [f"take {'all' if node.length is None else f'{node.length:,}'} rows{behind}"]
    return _ask_words(node) if isinstance(node, Ask) else [getattr(node, "text", "")]


def _ask_words(ask: Ask) -> list[str]:
    by_column = {use.column: use for use in ask.calls}
    short = ", only as far as a row's fate is open" if ask.keep else ""
    lines = [f"ask the model about each row, in this order{short}:"]
    for number, column in enumerate(ask.order or tuple(by_column), start=1):
        use = by_column[column]
        wanted = ", answer kept" if column in ask.answer_columns else ""
        lines.append(f"  {chr(96 + number) if number < 27 else number}) {describe_call(use.call)}{wanted}")
    for predicate in ask.keep:
        assert predicate.test is not None
        share = passing_share(predicate.test.condition, predicate.calls)
        lines.append(f"  keep rows where {predicate.text} (about {share:.0%})")
    if ask.limit is not None:
        lines.append(f"  stop once {ask.limit:,} rows are through")
    return lines


def _listed(found: tuple[Expression, ...]) -> list[str]:
    return [f"  {expression.text}" for expression in found]


def _plain(names: tuple[str, ...]) -> list[str]:
    return ["(an answer)" if name.startswith(ANSWER) else name for name in names]
