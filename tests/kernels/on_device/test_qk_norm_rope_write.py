"""QK-norm, RoPE and the write into the arena agree with the reference, and nothing else in the arena changes."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from quail_frames.kernels import rope_table
from tests.kernels.comparison import DEVICE, agree, randn

HEADS = st.sampled_from([(1, 1), (3, 1), (4, 2), (6, 2)])


@given(st.integers(1, 6), HEADS, st.sampled_from([16, 24, 64]), st.booleans(), st.booleans(), st.integers(0, 999))
def test_agrees(tokens: int, heads: tuple[int, int], head_dim: int, has_norm: bool, has_rope: bool, seed: int) -> None:
    every, kv = heads
    generator = torch.Generator().manual_seed(seed)
    qkv = randn(seed, tokens, (every + 2 * kv) * head_dim + 8)[:, :-8]
    positions = torch.randint(0, 40, (tokens,), generator=generator, dtype=torch.int32).to(DEVICE)
    slots = torch.randperm(32, generator=generator)[:tokens].to(DEVICE)
    slots[0] = -1
    weights = [randn(seed + i, head_dim) if has_norm else None for i in (1, 2)]
    rope = rope_table(torch.rand(head_dim // 2, generator=generator), 40).to(DEVICE) if has_rope else None
    arenas = [randn(seed + i, 32, kv, head_dim) for i in (3, 4)]
    agree(*("qk_norm_rope_write", qkv, every, kv, positions, rope, *weights, 1e-6, *arenas, slots), changed=(8, 9))


@pytest.mark.parametrize("position_dtype", [torch.int32, torch.int64])
def test_an_arena_may_be_one_layer_of_a_larger_tensor(position_dtype: torch.dtype) -> None:
    layers = randn(1, 3, 2, 8, 2, 16, dtype=torch.bfloat16)
    positions = torch.arange(3, dtype=position_dtype, device=DEVICE)
    slots = torch.tensor([7, 0, 2], device=DEVICE)
    rope = rope_table(torch.rand(8), 4).to(DEVICE)
    arguments = (randn(2, 3, 8 * 16, dtype=torch.bfloat16), 4, 2, positions, rope, None, None, 1e-6)
    agree("qk_norm_rope_write", *arguments, *layers[1], slots, changed=(8, 9), tolerance=2**-7)
