"""Does the cost model put plans into the right order? Alternative plans of one query, predicted and measured.

Predicted seconds are the roofline of the work that a plan is expected to do, at the peaks measured on this machine
(`local`). The plans of a case run in turn, several times; the least processor time of each counts, which a busy
machine inflates least. A case counts where two of its plans differ by more than a fifth.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass
from itertools import combinations

import torch

from benchmarks.common import Machine, Spent, Watch, model_options, show, write
from benchmarks.plan_cases import cases
from benchmarks.plan_runs import Bench, Case
from quail_frames.cost.choices import Target
from quail_frames.cost.local import local_device
from quail_frames.cost.shapes import shape
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.report import RunReport

APART = 1.2
REPEATS = 3


@dataclass(frozen=True)
class Measured:
    """One plan: seconds predicted and measured, tokens expected and computed."""

    name: str
    predicted: float
    seconds: float
    wall: float
    expected_tokens: float
    tokens: int

    @property
    def over_sol(self) -> float:
        """Measured over the speed of light of the expected work."""
        return self.seconds / self.predicted


@dataclass(frozen=True)
class Result:
    """A case's plans, cheapest first as predicted."""

    case: str
    plans: tuple[Measured, ...]

    @property
    def pairs_apart(self) -> list[tuple[Measured, Measured]]:
        """Pairs of plans whose measured times differ by more than a fifth, the one predicted to be cheaper first."""
        return [
            (a, b) for a, b in combinations(self.plans, 2) if max(a.seconds / b.seconds, b.seconds / a.seconds) > APART
        ]

    @property
    def agrees(self) -> bool | None:
        """Whether all those pairs were predicted in the order measured; None where there is no such pair."""
        return all(a.seconds < b.seconds for a, b in self.pairs_apart) if self.pairs_apart else None


def measure(case: Case, target: Target, threads: int, repeats: int = REPEATS) -> Result:
    """Every plan of the case `repeats` times in turn, once before to warm up."""
    best: dict[str, tuple[Spent, int]] = {}
    for turn in range(repeats + 1):
        for plan in case.alternatives if turn % 2 else case.alternatives[::-1]:
            report, watch = RunReport(), Watch()
            plan.run(report)
            spent = watch.spent()
            if turn and (plan.name not in best or spent.processor < best[plan.name][0].processor):
                best[plan.name] = (spent, report.fresh_tokens)
    plans = []
    for plan in case.alternatives:
        spent, tokens = best[plan.name]
        predicted = target.price(plan.work).seconds
        plans.append(
            Measured(plan.name, predicted, spent.processor / threads, spent.wall, plan.work.new_tokens, tokens)
        )
    return Result(case.name, tuple(sorted(plans, key=lambda plan: plan.predicted)))


def run(options: Namespace) -> list[Result]:
    """All cases on two engines of one model."""
    torch.set_num_threads(options.threads)
    found = shape(f"{options.model}-fp32" if options.dtype == "float32" else options.model)
    target = Target.of(found, local_device(found, fresh=True))
    with (
        Engine(options.model, attention="tree", dtype=options.dtype) as engine,
        Engine(options.model, attention="unified", dtype=options.dtype) as unified,
    ):
        bench = Bench(engine, unified, target, options.scale)
        return [measure(case, target, options.threads, options.repeats) for case in cases(bench)]


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = model_options(__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the queries (default: %(default)s)")
    parser.add_argument("--repeats", type=int, default=REPEATS, help="runs of each plan (default: %(default)s)")
    options = parser.parse_args(arguments)
    machine = Machine.here()
    results = run(options)
    report(results, options, machine)


def report(results: list[Result], options: Namespace, machine: Machine) -> None:
    """Print the table and write the JSON."""
    rows: list[list[object]] = []
    for result in results:
        verdict = {True: "yes", False: "NO", None: "too close"}[result.agrees]
        for number, plan in enumerate(result.plans):
            first = number == 0
            rows.append(
                [
                    result.case if first else "",
                    plan.name,
                    plan.predicted,
                    plan.seconds,
                    plan.over_sol,
                    round(plan.expected_tokens),
                    plan.tokens,
                    verdict if first else "",
                ]
            )
    decided = [result for result in results if result.agrees is not None]
    agreeing = sum(bool(result.agrees) for result in decided)
    caption = (
        f"predicted order is the measured one in {agreeing} of {len(decided)} cases whose times differ by more than "
        f"{APART - 1:.0%} ({len(results)} cases)\n"
        f"{options.model}, {options.dtype}, {options.threads} threads, processor seconds of the best of "
        f"{options.repeats} runs; {machine.line()}"
    )
    columns = ["case", "plan", "predicted s", "measured s", "/ SoL", "tokens exp.", "tokens", "agrees"]
    show("Alternative plans, cheapest first as predicted", columns, rows, caption)
    figures = {
        "agreeing": agreeing,
        "decided": len(decided),
        "cases": [
            {"case": r.case, "agrees": r.agrees, "plans": [{**vars(p), "over_sol": p.over_sol} for p in r.plans]}
            for r in results
        ],
    }
    settings = {name: getattr(options, name) for name in ("model", "dtype", "threads", "scale", "repeats")}
    write(options.json, {**figures, **settings}, machine)


if __name__ == "__main__":
    main()
