"""The plans that `benchmarks.plan_choice` compares compute the tokens that the cost model expects of them."""

from __future__ import annotations

import pytest

from benchmarks.plan_cases import cases
from benchmarks.plan_choice import Measured, Result, measure
from benchmarks.plan_runs import Bench, Case
from quail_frames.cost.choices import Target
from quail_frames.cost.devices import ORDINARY_CPU
from quail_frames.cost.shapes import shape
from quail_frames.runtime.engine import Engine

TARGET = Target.of(shape("smollm2-135m-fp32"), ORDINARY_CPU)


@pytest.fixture(scope="module")
def found() -> list[tuple[Case, Result]]:
    """All cases on the oracle, whose answers cost nothing."""
    with Engine("oracle") as engine:
        bench = Bench(engine, engine, TARGET, 0.4)
        return [(case, measure(case, TARGET, threads=1, repeats=1)) for case in cases(bench)]


def test_there_are_ten_queries_with_two_plans_or_more(found: list[tuple[Case, Result]]) -> None:
    assert len(found) >= 10 and all(len(case.alternatives) >= 2 for case, _ in found)
    assert len({case.name for case, _ in found}) == len(found)


def test_a_plan_computes_the_tokens_expected_of_it(found: list[tuple[Case, Result]]) -> None:
    for case, result in found:
        for plan in result.plans:
            assert plan.tokens == pytest.approx(plan.expected_tokens, rel=0.1), (case.name, plan.name)


def test_plans_of_a_query_differ(found: list[tuple[Case, Result]]) -> None:
    differing = [case for case, _ in found if len({each.work for each in case.alternatives}) == len(case.alternatives)]
    assert len(differing) >= 10, "all, but for one that needs more texts than the samples in the repository"


def plan(name: str, predicted: float, seconds: float) -> Measured:
    return Measured(name, predicted, seconds, seconds, 1.0, 1)


def test_a_case_agrees_where_all_plans_that_differ_are_in_the_predicted_order() -> None:
    assert Result("", (plan("a", 1, 1), plan("b", 2, 3))).agrees is True
    assert Result("", (plan("a", 1, 3), plan("b", 2, 1))).agrees is False
    assert Result("", (plan("a", 1, 1.1), plan("b", 2, 1))).agrees is None
    assert Result("", (plan("a", 1, 1), plan("b", 2, 3), plan("c", 3, 2))).agrees is False
    assert plan("a", 1, 3).over_sol == 3
