"""Roofline seconds: monotone, additive where one bound rules, and equal to the published figures."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quail_frames.cost.devices import DEVICES, device, device_of_gpu
from quail_frames.cost.roofline import roofline
from quail_frames.cost.shapes import SHAPES, shape
from quail_frames.cost.work import NOTHING, Work, filter_chain, prefill
from quail_frames.errors import PlanError

works = st.builds(Work, *[st.floats(0, 1e12)] * 6)
busy = st.builds(Work, *[st.floats(1, 1e12)] * 6)
"""With a head row a batch or more: with fewer a work reads a part of the head, and two together read a larger part."""
models = st.sampled_from(sorted(SHAPES)).map(SHAPES.__getitem__)
devices = st.sampled_from(sorted(DEVICES)).map(DEVICES.__getitem__)


@given(works, works, models, devices, st.floats(0, 1e4))
def test_more_work_never_takes_less_time(a: Work, b: Work, model, where, batches: float) -> None:
    together = roofline(a + b, model, where, batches).seconds
    assert together >= roofline(a, model, where, batches).seconds * (1 - 1e-12)


@given(busy, busy, models, devices, st.floats(0, 1), st.floats(0, 1))
def test_two_works_together_take_at_most_the_sum(a: Work, b: Work, model, where, m: float, n: float) -> None:
    # Memory and compute overlap: what one work leaves idle the other may use. Never the other way round.
    together = roofline(a + b, model, where, m + n).seconds
    apart = roofline(a, model, where, m).seconds + roofline(b, model, where, n).seconds
    assert together <= apart * (1 + 1e-9)


@given(works, models, devices, st.floats(0, 1e4), st.floats(0, 100))
def test_seconds_scale_with_work_and_batches(work: Work, model, where, batches: float, times: float) -> None:
    scaled = roofline(work * times, model, where, batches * times).seconds
    assert scaled == pytest.approx(times * roofline(work, model, where, batches).seconds, rel=1e-9, abs=1e-300)


@given(works, models, devices)
def test_the_breakdown_adds_up_and_names_the_bound(work: Work, model, where) -> None:
    breakdown = roofline(work, model, where)
    assert breakdown.seconds == sum(part.seconds for part in breakdown.components)
    for part in breakdown.components:
        if part.bound == "memory":
            assert part.seconds == part.bytes / where.bandwidth
        else:
            assert part.seconds >= part.bytes / where.bandwidth
    assert len(breakdown.lines()) == 4


def test_no_work_reads_the_weights_only() -> None:
    model, where = shape("qwen3-4b-fp8"), device("h100-sxm")
    matrices = (model.projection_parameters + model.mlp_parameters) * model.matrix_bytes_per_parameter
    assert roofline(NOTHING, model, where).seconds == pytest.approx(matrices / where.bandwidth)


def test_one_token_is_bound_by_memory_and_many_by_compute() -> None:
    model, where = shape("qwen3-4b-fp8"), device("h100-sxm")
    assert roofline(prefill(1), model, where).mlp.bound == "memory"
    assert roofline(prefill(4096), model, where).mlp.bound == "compute"


def test_two_filters_over_100_000_reviews_take_the_published_124_seconds() -> None:
    rows, tokens = 100_000, 29_926_924
    model, where = shape("qwen3-4b-fp8"), device("h100-sxm")
    work = filter_chain(tokens / rows, [19, 19], [0.25, 0.5], preamble=2) * rows
    assert work.new_tokens == pytest.approx(tokens + rows * 19 + 25_000 * 19)
    seconds = roofline(work, model, where, work.new_tokens / 110_376).seconds
    assert seconds == pytest.approx(124, rel=0.03)


def test_a_type_the_device_lacks_runs_as_the_next_wider_one() -> None:
    assert device("a100-80").peak("fp8") == 312e12
    assert device("M-Series").peak("int8") == device("m2-max").peak("bf16")


def test_unknown_devices_are_refused_with_the_nearest() -> None:
    with pytest.raises(PlanError, match="did you mean h100"):
        device("h100-sx")


def test_a_device_costs_nothing_known_until_a_price_is_given() -> None:
    assert device("h200").price(3600) is None
    assert replace(device("h200"), price_per_hour=3.0).price(1200) == pytest.approx(1.0)


def test_a_gpu_is_known_by_its_whole_name_only() -> None:
    assert device_of_gpu("NVIDIA H200") == device("h200")
    assert device_of_gpu("NVIDIA GeForce RTX 4090") == device("rtx-4090")
    assert device_of_gpu("NVIDIA H100 PCIe") is None
    assert device_of_gpu("NVIDIA GeForce RTX 4090 Laptop GPU") is None
