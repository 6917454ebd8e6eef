"""The FP8 matmul agrees with the product of the dequantised sides."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from quail_frames.kernels.quantize import Quantized, quantize_reference
from tests.kernels.comparison import DEVICE, agree, close, randn, run


def sides(tokens: int, outputs: int, inputs: int, seed: int) -> tuple[Quantized, torch.Tensor, torch.Tensor]:
    weight = (randn(seed, outputs, inputs) * 100).to(torch.float8_e4m3fn)
    scales = randn(seed + 1, -(-outputs // 128), -(-inputs // 128)).abs() / 100
    return quantize_reference(randn(seed + 2, tokens, inputs)), weight, scales


@given(
    st.sampled_from([1, 15, 16, 33]), st.sampled_from([32, 100, 160]), st.sampled_from([128, 200]), st.integers(0, 99)
)
def test_agrees(tokens: int, outputs: int, inputs: int, seed: int) -> None:
    agree("block_scaled_matmul", *sides(tokens, outputs, inputs, seed), torch.float32)


def test_every_tile_is_computed_once_when_bands_of_rows_are_uneven() -> None:
    # 10 row tiles under the interpreter: one full band of 8 and one of 2; two programs share 20 tiles.
    agree("block_scaled_matmul", *sides(300, 100, 128, 7), torch.float32)


def test_a_row_does_not_depend_on_its_neighbours() -> None:
    x, weight, scales = sides(40, 96, 256, 5)
    (together,) = run("block_scaled_matmul", "triton", x, weight, scales, torch.float32)
    (alone,) = run(
        *("block_scaled_matmul", "triton", Quantized(x.values[30:], x.scales[30:]), weight, scales, torch.float32)
    )
    close(alone, together[30:], 1e-6)


def test_bf16_out() -> None:
    agree("block_scaled_matmul", *sides(16, 64, 256, 3), torch.bfloat16, tolerance=2**-7)


def test_no_tokens_give_no_rows() -> None:
    x = Quantized(torch.empty(0, 128, dtype=torch.float8_e4m3fn, device=DEVICE), torch.empty(0, 1, device=DEVICE))
    _, weight, scales = sides(1, 64, 128, 0)
    agree("block_scaled_matmul", x, weight, scales, torch.float32)
