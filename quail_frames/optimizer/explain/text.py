"""A query as one would explain it to a colleague: what was written, what will run, and what every decision cost."""

from __future__ import annotations

from collections.abc import Iterator

from quail_frames.cost.choices import Choice
from quail_frames.optimizer.decisions import letter
from quail_frames.optimizer.estimate import PlanEstimate, StepEstimate
from quail_frames.optimizer.explain.numbers import count, duration, money, priced, target_lines
from quail_frames.optimizer.explain.words import numbered
from quail_frames.optimizer.statistics import SourceFigures
from quail_frames.plan.logical import Ask, AskPairs, Concat, Node, Source, columns, inputs


def explain(written: Node, planned: Node | None = None, estimate: PlanEstimate | None = None) -> str:
    """The query as written, where given as planned, and with an estimate every number and decision behind it."""
    parts = ["As written", *numbered(written)]
    if planned is None:
        return "\n".join(parts)
    if estimate is None:
        return "\n".join([*parts, "", "As planned", *numbered(planned)])
    steps = {id(step.node): step for step in estimate.steps}
    parts += ["", "As planned", *numbered(planned, lambda node: step_lines(steps[id(node)]))]
    if estimate.asks:
        parts += ["", *_totals(estimate), *_decisions(estimate), "", *_basis(estimate)]
    return "\n".join(parts)


def step_lines(step: StepEstimate) -> list[str]:
    """What a step is expected to do, below its words."""
    if isinstance(step.node, Source):
        return []
    if not step.calls:
        return [f"-> about {count(step.rows)} rows"] if step.rows != step.rows_in else []
    several = len(step.calls) > 1
    lines = [f"-> {_call_line(step, number, several)}" for number in range(len(step.calls))]
    return [*lines, f"-> about {_numbers(step)}"]


def _call_line(step: StepEstimate, number: int, several: bool) -> str:
    call = step.calls[number]
    name = f"{letter(number)}) " if several else ""
    figures = call.figures
    where = "question first" if figures.question_first else "document first"
    reads = "TRUE/FALSE" if figures.scoring == "true_false" else figures.scoring
    rest = f"{count(call.own_tokens)} tokens of its own, {where}, reads {reads}"
    return f"{name}asked about {count(call.asks)} times; {rest}"


def _numbers(step: StepEstimate) -> str:
    rows = f"{count(step.rows_in)} rows in, {count(step.rows)} out"
    least = f"speed of light {duration(step.least_seconds)}"
    again = f", {count(step.regret_tokens)} of them again because memory is short" if step.regret_tokens else ""
    return f"{rows}; {count(step.asks)} asks, {count(step.tokens)} tokens{again}, {duration(step.seconds)} ({least})"


def _totals(estimate: PlanEstimate) -> Iterator[str]:
    cost = estimate.cost
    price = "" if cost is None else f", {money(cost)} at {estimate.prices.target.device.price_per_hour:,.2f} an hour"
    yield (
        f"In all about {count(estimate.asks)} asks, {count(estimate.work.new_tokens)} tokens, "
        f"{duration(estimate.seconds)} (speed of light {duration(estimate.least_seconds)}){price}"
    )


def _decisions(estimate: PlanEstimate) -> Iterator[str]:
    numbers, explained = step_numbers(estimate.root.node), set[str]()
    for choice in estimate.decisions:
        yield from ("", *_choice("whole query", choice), f"  price: {choice.formula}")
    for step in estimate.steps:
        for choice in step.decisions:
            yield ""
            yield from _choice(numbers.get(id(step.node), "right side"), choice)
            if choice.formula not in explained:
                explained.add(choice.formula)
                yield f"  price: {choice.formula}"
            if choice.decision == "order of questions":
                yield from _shares(step)


def _choice(number: str, choice: Choice) -> Iterator[str]:
    yield f"{number}, {choice.decision}: {choice.chosen}"
    width = max(len(each.name) for each in choice.alternatives)
    for each in choice.alternatives:
        mark = "  <- taken" if each.name == choice.chosen else ""
        yield f"  {each.name:<{width}}  {priced(each)}{mark}"
    if choice.because:
        yield f"  because {choice.because}"


def _shares(step: StepEstimate) -> Iterator[str]:
    told = [
        f"{letter(at)}) {call.share:.0%} ({call.share_from})"
        for at, call in enumerate(step.calls)
        if call.share is not None
    ]
    yield f"  expected to pass: {', '.join(told)}"


def step_numbers(node: Node) -> dict[int, str]:
    """Names of the steps on the plan's main line and of those in appended frames, by the nodes' identities."""
    names: dict[int, str] = {}
    for number, each in enumerate(_main_line(node), start=1):
        names[id(each)] = f"step {number}"
        for branch in each.inputs[1:] if isinstance(each, Concat) else ():
            names |= {key: f"step {number}, its {name}" for key, name in step_numbers(branch).items()}
    return names


def _main_line(node: Node) -> list[Node]:
    return [*(_main_line(inputs(node)[0]) if inputs(node) else ()), node]


def _basis(estimate: PlanEstimate) -> Iterator[str]:
    """What the prices rest on."""
    prices = estimate.prices
    yield "Priced by"
    yield from (f"  {line}" for line in target_lines(prices.target))
    yield from (f"  {note}" for note in prices.notes)
    for step in estimate.steps:
        if isinstance(step.node, Source):
            found = prices.statistics.of(step.node)
            yield f"  {step.node.text}: {_figures(step.node, found, estimate)}"
    yield f"  tokens by {prices.statistics.tokens_from}; seconds are the device's roofline, nothing is fitted"


def _figures(source: Source, found: SourceFigures, estimate: PlanEstimate) -> str:
    asked = {
        text.column
        for step in estimate.steps
        if isinstance(step.node, Ask)
        for use in step.node.calls
        for text in use.inputs
    }
    asked |= {name for step in estimate.steps if isinstance(step.node, AskPairs) for _, name in step.node.slots}
    names = [name for name in columns(source) if name in asked and name in found.columns]
    texts = [f"{{{name}}} about {count(found.columns[name].mean_tokens)} tokens" for name in names]
    looked = f" in {found.sampled} sampled rows" if texts else ""
    return f"{count(found.rows)} rows ({found.rows_from})" + (f", {', '.join(texts)}{looked}" if texts else "")
