"""A query that was run under observation: every step with what was measured beside what was expected."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any

import polars as pl

from quail_frames.cost.devices import UNMEASURED
from quail_frames.cost.roofline import roofline
from quail_frames.lazy.engines import Runner
from quail_frames.lazy.execute import Run, run_plan
from quail_frames.optimizer.decisions import letter
from quail_frames.optimizer.estimate import PlanEstimate, StepEstimate
from quail_frames.optimizer.explain.numbers import count, duration
from quail_frames.optimizer.explain.words import numbered, steps
from quail_frames.plan.calls import describe_call
from quail_frames.plan.logical import Node
from quail_frames.runtime.report import OrderChange, RunReport


@dataclass(frozen=True)
class CallProfile:
    """A call: how often it was asked, and the share answered TRUE (None for scores and labels) beside the expected."""

    call: str
    asks: int
    passed: float | None
    expected: float | None


@dataclass(frozen=True)
class StepProfile:
    """A step as it ran; None where nothing counted it (steps that Polars fuses with their neighbours).

    `seconds` are the device's, `speed_of_light` the least seconds of the work that was done, `slowdown` their ratio.
    """

    words: tuple[str, ...]
    rows_in: int | None
    rows: int | None
    expected_rows: float
    calls: tuple[CallProfile, ...] = ()
    asks: int = 0
    fresh_tokens: int = 0
    reused_tokens: int = 0
    regret_tokens: int = 0
    seconds: float = 0.0
    speed_of_light: float = 0.0
    order_changes: tuple[OrderChange, ...] = ()

    @property
    def slowdown(self) -> float | None:
        """Measured seconds / speed of light."""
        return self.seconds / self.speed_of_light if self.speed_of_light else None


@dataclass(frozen=True, repr=False)
class Profile:
    """The rows of a query and what every step did; its `repr` is the plan with the figures.

    `seconds` is the whole run by the clock.
    """

    frame: pl.DataFrame
    report: RunReport
    steps: tuple[StepProfile, ...]
    seconds: float
    speed_of_light: float
    text: str = field(repr=False, default="")

    def __repr__(self) -> str:
        return self.text

    def to_dict(self) -> dict[str, Any]:
        """Everything but the rows, as plain data."""
        return {
            "steps": [asdict(step) | {"slowdown": step.slowdown} for step in self.steps],
            "seconds": self.seconds,
            "speed_of_light": self.speed_of_light,
            "report": self.report.to_dict(),
        }


def profiled(estimate: PlanEstimate, engine: Callable[[], Runner], report: RunReport, schema: pl.Schema) -> Profile:
    """Run an estimated plan and count what each of its steps does."""
    run = Run(engine, report, reports={}, counts={})
    frames = list(run_plan(estimate.root.node, run))
    assert run.reports is not None and run.counts is not None
    for each in run.reports.values():
        report.add(each)
    profiles = {id(step.node): _profile(step, run.reports, run.counts, estimate) for step in estimate.steps}
    least = sum(each.speed_of_light for each in profiles.values())
    frame = pl.concat(frames, rechunk=True) if frames else pl.DataFrame(schema=schema)
    text = _text(estimate, profiles, report, least)
    return Profile(frame, report, tuple(profiles.values()), report.seconds, least, text)


def _profile(
    step: StepEstimate, reports: dict[int, RunReport], counts: dict[int, int], estimate: PlanEstimate
) -> StepProfile:
    words, rows = tuple(steps(step.node)[-1]), counts.get(id(step.node))
    report = reports.get(id(step.node))
    if report is None:
        below = counts.get(id(step.inputs[0].node)) if step.inputs else None
        return StepProfile(words, below, rows, step.rows)
    target = estimate.prices.target
    whole = max(estimate.prices.target.budgets.tokens, 1)
    # On a machine that nobody has measured there is no speed of light to compare with.
    known = target.device.name not in UNMEASURED
    batches = min(1.0, report.fresh_tokens / whole)
    least = roofline(report.work, target.shape, target.device, batches).seconds if known else 0.0
    calls = []
    for call in step.calls:
        asked = report.asked[call.call.identity]
        boolean = call.call.kind == "AiIf" and asked
        passed = report.passed[call.call.identity] / asked if boolean else None
        calls.append(CallProfile(describe_call(call.call), asked, passed, call.share))
    return StepProfile(
        words,
        report.rows,
        rows,
        step.rows,
        tuple(calls),
        report.asks,
        report.fresh_tokens,
        report.reused_tokens,
        report.regret_tokens,
        report.device_seconds,
        least,
        report.order_changes,
    )


def _text(estimate: PlanEstimate, profiles: dict[int, StepProfile], report: RunReport, least: float) -> str:
    ratio = f", {report.device_seconds / least:.1f} x its speed of light" if least else ""
    head = f"Ran in {duration(report.seconds)}; the model worked for {duration(report.device_seconds)}{ratio}"
    return "\n".join([head, *numbered(estimate.root.node, lambda node: _lines(profiles, node))])


def _lines(profiles: dict[int, StepProfile], node: Node) -> list[str]:
    """What a step did, below its words."""
    step = profiles[id(node)]
    if not step.calls:
        return [] if step.rows is None else [f"=> {step.rows:,} rows (about {count(step.expected_rows)} expected)"]
    lines = []
    for at, call in enumerate(step.calls):
        name = f"{letter(at)}) " if len(step.calls) > 1 else ""
        passed = "" if call.passed is None else f", {call.passed:.0%} TRUE"
        expected = "" if call.expected is None or call.passed is None else f" ({call.expected:.0%} expected)"
        lines.append(f"=> {name}asked {call.asks:,} times{passed}{expected}")
    lines += [f"=> asked in another order {change}" for change in step.order_changes]
    rows = "" if step.rows_in is None or step.rows is None else f"{step.rows_in:,} rows in, {step.rows:,} out"
    regret = f", {step.regret_tokens:,} computed again" if step.regret_tokens else ""
    tokens = f"{step.fresh_tokens:,} tokens computed{regret}, {step.reused_tokens:,} reused"
    slow = "" if step.slowdown is None else f" ({step.slowdown:.1f} x the speed of light)"
    return [*lines, f"=> {rows} ({count(step.expected_rows)} expected); {tokens}; {duration(step.seconds)}{slow}"]
