"""Logits of chosen rows and candidates agree; padded candidates are -inf."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.comparison import DEVICE, agree, randn


@given(st.integers(1, 5), st.integers(1, 19), st.sampled_from([16, 70, 513]), st.integers(0, 999))
def test_agrees(answers: int, choices: int, features: int, seed: int) -> None:
    generator = torch.Generator().manual_seed(seed)
    hidden, head = randn(seed, 11, features + 4)[:, :features], randn(seed + 1, 50, features)
    rows = torch.randint(0, 11, (answers,), generator=generator).to(DEVICE)
    candidates = torch.randint(-1, 50, (answers, choices), generator=generator).to(DEVICE)
    agree("restricted_head", hidden, rows, head, candidates)


def test_bf16_weights_are_summed_in_float32() -> None:
    hidden, head = randn(1, 3, 600, dtype=torch.bfloat16), randn(2, 20, 600, dtype=torch.bfloat16)
    rows, candidates = torch.tensor([2, 0], device=DEVICE), torch.tensor([[1, 19], [-1, 4]], device=DEVICE)
    agree("restricted_head", hidden, rows, head, candidates, tolerance=1e-5)
