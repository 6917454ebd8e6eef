"""Kernels that work row by row agree with their references: norm, activation, merge, quantisation."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quail_frames.kernels.quantize import E4M3_MAX, quantize_reference
from tests.kernels.comparison import DEVICE, agree, randn, run

ROWS = st.integers(1, 5)
FEATURES = st.sampled_from([1, 31, 64, 128, 129, 200, 576])
SEEDS = st.integers(0, 999)
DTYPES = st.sampled_from([torch.float32, torch.bfloat16])
BF16 = 2**-7


def tolerance(dtype: torch.dtype) -> float:
    return BF16 if dtype == torch.bfloat16 else 2e-5


@given(ROWS, FEATURES, SEEDS, DTYPES)
def test_scales_and_scaled_values_agree(rows: int, features: int, seed: int, dtype: torch.dtype) -> None:
    agree("quantize", randn(seed, rows, features, dtype=dtype), torch.float32)


def test_a_row_of_zeros_stays_zero() -> None:
    values, scales = run("quantize", "triton", torch.zeros(2, 200, device=DEVICE), torch.float32)
    assert (values == 0).all()
    assert (scales > 0).all()


def test_the_largest_magnitude_of_a_group_takes_the_largest_e4m3_number() -> None:
    values, _ = run("quantize", "triton", randn(1, 4, 256), torch.float32)
    torch.testing.assert_close(
        values.abs().reshape(4, 2, 128).amax(-1), torch.full((4, 2), E4M3_MAX, device=DEVICE), rtol=1e-6, atol=0.0
    )


@pytest.mark.gpu
@pytest.mark.skipif(DEVICE.type != "cuda", reason="Triton 3.9's interpreter rounds the cast to e4m3 wrongly")
def test_e4m3_bits_agree() -> None:
    x = randn(2, 64, 2560, dtype=torch.bfloat16)
    values, scales = run("quantize", "triton", x)
    wanted = quantize_reference(x)
    torch.testing.assert_close(scales, wanted.scales)
    assert (values.view(torch.uint8) != wanted.values.view(torch.uint8)).float().mean() < 1e-4


@given(ROWS, FEATURES, SEEDS, DTYPES, st.booleans())
def test_norm_agrees(rows: int, features: int, seed: int, dtype: torch.dtype, has_residual: bool) -> None:
    hidden, weight = randn(seed, rows, features, dtype=dtype), randn(seed + 1, features, dtype=dtype)
    residual = randn(seed + 2, rows, features, dtype=dtype) if has_residual else None
    agree("add_rms_norm", hidden, residual, weight, 1e-6, tolerance=tolerance(dtype))


@given(ROWS, FEATURES, SEEDS, st.booleans())
def test_norm_and_quantise_agree(rows: int, features: int, seed: int, has_residual: bool) -> None:
    hidden, weight = randn(seed, rows, features), randn(seed + 1, features)
    residual = randn(seed + 2, rows, features) if has_residual else None
    agree("add_rms_norm_quantize", hidden, residual, weight, 1e-6, torch.float32)


def test_norm_takes_strided_rows() -> None:
    hidden, residual = randn(3, 4, 300)[:, :200], randn(4, 8, 200)[::2]
    agree("add_rms_norm", hidden, residual, randn(5, 200), 1e-6)


@given(ROWS, FEATURES, SEEDS, DTYPES, st.sampled_from(["silu", "gelu_tanh"]))
def test_activation_agrees(rows: int, features: int, seed: int, dtype: torch.dtype, activation: str) -> None:
    gate_up = randn(seed, rows, 2 * features, dtype=dtype)
    agree("silu_mul", gate_up, activation, tolerance=tolerance(dtype))
    agree("silu_mul_quantize", gate_up.float(), activation, torch.float32)


def test_activation_covers_more_groups_than_one_program_holds() -> None:
    agree("silu_mul_quantize", randn(6, 2, 2 * 1300), "silu", torch.float32)


@given(ROWS, st.integers(1, 5), st.sampled_from([16, 24, 64, 80, 128, 256]), SEEDS, DTYPES)
def test_merge_agrees(rows: int, heads: int, head_dim: int, seed: int, dtype: torch.dtype) -> None:
    out_a, out_b = (randn(seed + i, rows, heads, head_dim, dtype=dtype) for i in range(2))
    lse_a, lse_b = (randn(seed + 2 + i, rows, heads) * 30 for i in range(2))
    lse_a[0], lse_b[-1] = -torch.inf, -torch.inf
    out_a[0], out_b[-1] = 0.0, 0.0
    agree("merge_attention", out_a, lse_a, out_b, lse_b, tolerance=tolerance(dtype))
    agree("merge_attention_quantize", out_a.float(), lse_a, out_b.float(), lse_b, torch.float32)


@pytest.mark.parametrize("operation", ["quantize", "silu_mul"])
def test_no_rows_launch_nothing(operation: str) -> None:
    assert run(operation, "triton", torch.empty(0, 256, device=DEVICE))[0].shape[0] == 0
