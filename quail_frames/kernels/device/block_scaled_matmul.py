"""Triton kernel of `quail_frames.kernels.block_scaled_matmul`: persistent, one program a multiprocessor.

Each step multiplies one 128-wide slice of the inputs on the tensor cores and adds it to a float32 sum with the slice's
scales, which is also where DeepSeek-V3 promotes Hopper's short FP8 accumulators.
"""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# (the arguments of a Triton kernel have no Python types)

from __future__ import annotations

from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from quail_frames.kernels.device.target import INTERPRETER, architecture, processors
from quail_frames.kernels.quantize import GROUP, Quantized


@dataclass(frozen=True)
class Blocks:
    """Tile of the output that a program computes at a time, and how it is scheduled."""

    rows: int
    columns: int
    warps: int
    stages: int


def blocks_for(tokens: int, target: int) -> Blocks:
    """Block sizes for a target; FP8 tiles of 128 x 128 take 32 KiB of shared memory a stage."""
    if target == INTERPRETER:
        return Blocks(rows=32, columns=64, warps=1, stages=1)
    if tokens <= 64:
        return Blocks(rows=64, columns=64, warps=4, stages=4)
    return Blocks(rows=128, columns=128, warps=8, stages=4 if target >= 90 else 2)


@triton.jit
def _block_scaled_matmul(
    x,
    x_scales,
    weight,
    weight_scales,
    out,
    x_stride,
    weight_stride,
    tokens,
    outputs,
    inputs,
    BLOCK_ROWS: tl.constexpr,
    BLOCK_COLUMNS: tl.constexpr,
    TALL: tl.constexpr,
    EVEN: tl.constexpr,
):
    slices = (inputs + 127) // 128
    row_tiles = tl.cdiv(tokens, BLOCK_ROWS)
    column_tiles = tl.cdiv(outputs, BLOCK_COLUMNS)
    step = tl.arange(0, 128)
    for tile in range(tl.program_id(0), row_tiles * column_tiles, tl.num_programs(0)):
        # Bands of TALL row tiles, column by column: what neighbouring programs read stays in L2.
        band = tile // (TALL * column_tiles)
        height = tl.minimum(row_tiles - band * TALL, TALL)
        within = tile - band * TALL * column_tiles
        row = (band * TALL + within % height) * BLOCK_ROWS + tl.arange(0, BLOCK_ROWS)
        first_column = within // height * BLOCK_COLUMNS
        column = first_column + tl.arange(0, BLOCK_COLUMNS)
        # Rows past the end repeat the last one, so that loads need no mask; they are not stored.
        safe_row = tl.minimum(row, tokens - 1).to(tl.int64)
        safe_column = tl.minimum(column, outputs - 1).to(tl.int64)
        x_tile = x + safe_row[:, None] * x_stride + step[None, :]
        w_tile = weight + safe_column[:, None] * weight_stride + step[None, :]
        x_scale = x_scales + safe_row * slices
        w_scale = weight_scales + (first_column // 128) * slices
        total = tl.zeros([BLOCK_ROWS, BLOCK_COLUMNS], tl.float32)
        for index in range(0, slices):
            if EVEN:
                a = tl.load(x_tile)
                b = tl.load(w_tile)
            else:
                inside = (index * 128 + step < inputs)[None, :]
                a = tl.load(x_tile, mask=inside, other=0.0)
                b = tl.load(w_tile, mask=inside, other=0.0)
            scale = tl.load(x_scale + index) * tl.load(w_scale + index)
            total += tl.dot(a, tl.trans(b)) * scale[:, None]
            x_tile += 128
            w_tile += 128
        place = out + row.to(tl.int64)[:, None] * outputs + column[None, :]
        inside = (row < tokens)[:, None] & (column < outputs)[None, :]
        tl.store(place, total.to(out.dtype.element_ty), mask=inside)


def block_scaled_matmul(
    x: Quantized, weight: Tensor, weight_scales: Tensor, out_dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """See `quail_frames.kernels.block_scaled_matmul.block_scaled_matmul`; rows of values may be strided, scales not."""
    tokens, inputs = x.values.shape
    outputs = weight.shape[0]
    out = torch.empty(tokens, outputs, dtype=out_dtype, device=weight.device)
    if not tokens:
        return out
    blocks = blocks_for(tokens, architecture())
    tiles = triton.cdiv(tokens, blocks.rows) * triton.cdiv(outputs, blocks.columns)
    _block_scaled_matmul[(min(tiles, processors(weight.device)),)](
        x.values,
        x.scales,
        weight,
        weight_scales,
        out,
        x.values.stride(0),
        weight.stride(0),
        tokens,
        outputs,
        inputs,
        BLOCK_ROWS=blocks.rows,
        BLOCK_COLUMNS=blocks.columns,
        TALL=8,
        EVEN=inputs % GROUP == 0,
        num_warps=blocks.warps,
        enable_fp_fusion=True,
        num_stages=blocks.stages,
    )
    return out
