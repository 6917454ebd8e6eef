"""The kernels at a model's shapes and in its types: Qwen3-4B's on a GPU, a toy's under the interpreter.

Compared with the references on the same device, chunk sizes and block sizes being those of real batches.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
import torch

from quail_frames.kernels import PagedContexts, Quantized, QueryGroups, SuffixMask, quantize, rope_table, using
from tests.kernels.comparison import DEVICE, agree, randn

CUDA = DEVICE.type == "cuda"
HALF = torch.bfloat16 if CUDA else torch.float16
TOLERANCE = 2**-6


@dataclass(frozen=True)
class Shape:
    tokens: int
    hidden: int
    mlp: int
    heads: int
    kv_heads: int
    head_dim: int
    contexts: tuple[int, ...]
    ask_tokens: int


SHAPE = (
    Shape(2048, 2560, 9728, 32, 8, 128, (4096, 0, 1000, 17), 32)
    if CUDA
    else Shape(18, 96, 160, 4, 2, 16, (40, 0, 17), 6)
)


def half(seed: int, *shape: int) -> torch.Tensor:
    return randn(seed, *shape, dtype=HALF)


def test_row_kernels() -> None:
    s = SHAPE
    x, gate_up = half(1, s.tokens, s.hidden), half(2, s.tokens, 2 * s.mlp)
    agree("add_rms_norm", x, half(3, s.tokens, s.hidden), half(4, s.hidden), 1e-6, tolerance=TOLERANCE)
    agree("silu_mul", gate_up, "silu", tolerance=TOLERANCE)


def test_queries_keys_and_values() -> None:
    s = SHAPE
    slots = torch.randperm(2 * s.tokens, generator=torch.Generator().manual_seed(1))[: s.tokens].to(DEVICE)
    slots[::3] = -1
    frequencies = 1e6 ** -(torch.arange(0, s.head_dim, 2) / s.head_dim)
    norms = [half(i, s.head_dim) for i in (3, 4)]
    arenas = [half(i, 2 * s.tokens, s.kv_heads, s.head_dim) for i in (5, 6)]
    agree(
        "qk_norm_rope_write",
        *(half(2, s.tokens, (s.heads + 2 * s.kv_heads) * s.head_dim), s.heads, s.kv_heads),
        *(torch.arange(s.tokens, device=DEVICE), rope_table(frequencies, s.tokens).to(DEVICE), *norms, 1e-6),
        *(*arenas, slots),
        changed=(8, 9),
        tolerance=TOLERANCE,
    )


@pytest.mark.parametrize("tokens", [SHAPE.tokens, SHAPE.tokens - 1, 5])
def test_projections(tokens: int) -> None:
    s = SHAPE
    with using(quantize="torch"):
        x: Quantized = quantize(randn(1, tokens, s.hidden))
    outputs = (s.heads + 2 * s.kv_heads) * s.head_dim
    weight = randn(2, outputs, s.hidden).to(torch.float8_e4m3fn)
    scales = randn(3, -(-outputs // 128), -(-s.hidden // 128)).abs()
    agree("block_scaled_matmul", x, weight, scales, torch.bfloat16, tolerance=TOLERANCE)


def test_attention_over_shared_contexts() -> None:
    s = SHAPE
    groups = len(s.contexts)
    pages = -(-np.array(s.contexts) // 16)
    order = torch.randperm(int(pages.sum()), generator=torch.Generator().manual_seed(1)).int()
    starts = torch.from_numpy(np.cumsum(pages) - pages)
    lengths = torch.tensor(s.contexts, dtype=torch.int32)
    contexts = PagedContexts(order.to(DEVICE), starts.to(DEVICE), lengths.to(DEVICE))
    arenas = [half(i, int(pages.sum()) * 16, s.kv_heads, s.head_dim) for i in (2, 3)]
    q = half(4, s.tokens, s.heads, s.head_dim)
    k, v = (half(i, s.tokens, s.kv_heads, s.head_dim) for i in (5, 6))
    scale = s.head_dim**-0.5
    together = QueryGroups.of([s.tokens // groups] * groups, DEVICE)
    assert together.offsets[-1] == s.tokens
    agree("prefix_attention", q, *arenas, contexts, together, scale, tolerance=TOLERANCE)
    agree("unified_attention", q, k, v, *arenas, contexts, together, scale, tolerance=TOLERANCE)
    each = QueryGroups.of([s.ask_tokens] * (s.tokens // s.ask_tokens), DEVICE)
    branches = np.arange(s.tokens) - 1
    branches[:: s.ask_tokens] = -1
    branches[2 :: s.ask_tokens] = branches[1 :: s.ask_tokens]
    mask = SuffixMask.from_parents(branches, DEVICE)
    for seen in (None, mask):
        agree("suffix_attention", q, k, v, each, scale, seen, tolerance=TOLERANCE)


def test_head() -> None:
    s = SHAPE
    rows = torch.arange(0, s.tokens, s.ask_tokens, device=DEVICE)
    candidates = torch.arange(8, device=DEVICE).repeat(len(rows), 1)
    agree("restricted_head", half(1, s.tokens, s.hidden), rows, half(2, 16, s.hidden), candidates, tolerance=1e-4)
