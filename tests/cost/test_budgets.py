"""Budgets reproduce the published engine's figures and keep their promises for ours."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quail_frames.cost.budgets import (
    activation_bytes_per_token,
    budgets,
    knee,
    own_conventions,
    published_conventions,
)
from quail_frames.cost.devices import DEVICES, Device, device
from quail_frames.cost.roofline import roofline
from quail_frames.cost.shapes import SHAPES, shape
from quail_frames.cost.work import prefill
from quail_frames.errors import PlanError

CPU = Device("local", 24e9, 12e9, {"fp32": 90e9}, shared_memory=True)


def test_the_published_conventions_give_the_published_budgets() -> None:
    model = shape("qwen3-4b-fp8")
    rules = published_conventions(model, weight_bytes=4.5e9)
    assert rules.activation_bytes_per_token == 81_920
    found = budgets(model, device("h100-sxm"), rules)
    assert found.tokens == 110_376
    assert found.kv_tokens == pytest.approx(362_250, abs=16)
    assert found.kv_tokens % 16 == 0


@given(st.sampled_from(sorted(SHAPES)), st.sampled_from(sorted(DEVICES)))
def test_our_budgets_fit_the_memory_and_hold_a_whole_batch(name: str, where: str) -> None:
    model, place = SHAPES[name], DEVICES[where]
    try:
        found = budgets(model, place)
    except PlanError:
        assert model.weight_bytes > 0.45 * place.memory_bytes
        return
    assert found.weight_bytes + found.activation_bytes + found.kv_bytes <= place.memory_bytes
    assert found.kv_tokens >= found.tokens - found.page_tokens
    assert found.pages * found.page_tokens == found.kv_tokens


@pytest.mark.parametrize(
    ("model", "place"), [("qwen3-4b-fp8", device("h100-sxm")), ("smollm2-135m-fp32", CPU), ("qwen3-0.6b-fp32", CPU)]
)
def test_our_token_budget_keeps_weight_reads_under_one_percent(model: str, place: Device) -> None:
    found = budgets(shape(model), place)
    mlp = roofline(prefill(found.tokens), shape(model), place).mlp
    assert mlp.bytes / place.bandwidth <= 0.01 * mlp.seconds * (1 + 1e-9)
    assert found.tokens == pytest.approx(100 * knee(shape(model), place), abs=1)


def test_activations_count_the_wider_of_attention_and_mlp() -> None:
    model = shape("qwen3-4b")
    assert activation_bytes_per_token(model) == 2 * (2 * 2560 + 3 * 9728)
    wide = replace(model, mlp=16)
    assert activation_bytes_per_token(wide) == 2 * (2 * 2560 + 80 * 128)


def test_shared_memory_is_left_by_half_to_other_programs() -> None:
    assert own_conventions(shape("smollm2-135m-fp32"), CPU).free_share == 0.5
    assert own_conventions(shape("qwen3-4b"), device("h200")).free_share == 0.05


def test_a_model_that_does_not_fit_is_refused_with_its_size() -> None:
    with pytest.raises(PlanError, match=r"llama-3.1-70b does not fit on h100-sxm: its weights take 141.1 GB"):
        budgets(shape("llama-3.1-70b"), device("h100-sxm"))


def test_a_query_takes_at_least_one_batch() -> None:
    found = budgets(shape("qwen3-4b-fp8"), device("h100-sxm"))
    assert found.batches(1) == 1
    assert found.batches(found.tokens * 2.5) == 2.5
