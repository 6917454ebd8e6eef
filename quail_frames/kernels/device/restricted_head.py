"""Triton kernel of `quail_frames.kernels.restricted_head`."""

# mypy: disallow-untyped-defs=False, disallow-incomplete-defs=False
# (the arguments of a Triton kernel have no Python types)

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from quail_frames.kernels.device.target import power_of_two

CHOICES_A_PROGRAM = 8


@triton.jit
def _restricted_head(
    hidden,
    rows,
    head,
    candidates,
    logits,
    hidden_stride,
    head_stride,
    features,
    choices,
    CHOICES: tl.constexpr,
    BLOCK: tl.constexpr,
):
    answer = tl.program_id(0).to(tl.int64)
    choice = tl.program_id(1) * CHOICES + tl.arange(0, CHOICES)
    token = tl.load(candidates + answer * choices + choice, mask=choice < choices, other=-1)
    present = token >= 0
    source = hidden + tl.load(rows + answer) * hidden_stride
    weights = head + tl.where(present, token, 0)[:, None] * head_stride
    total = tl.zeros([CHOICES, BLOCK], tl.float32)
    for start in range(0, features, BLOCK):
        column = start + tl.arange(0, BLOCK)
        inside = column < features
        x = tl.load(source + column, mask=inside, other=0.0).to(tl.float32)
        weight = tl.load(weights + column[None, :], mask=present[:, None] & inside[None, :], other=0.0)
        total += weight.to(tl.float32) * x[None, :]
    logit = tl.where(present, tl.sum(total, axis=1), float("-inf"))
    tl.store(logits + answer * choices + choice, logit, mask=choice < choices)


def restricted_head(hidden: Tensor, rows: Tensor, head: Tensor, candidates: Tensor) -> Tensor:
    """See `quail_frames.kernels.restricted_head.restricted_head`; `rows` and `candidates` int64, contiguous."""
    answers, choices = candidates.shape
    logits = torch.empty(answers, choices, dtype=torch.float32, device=hidden.device)
    if not logits.numel():
        return logits
    block = min(power_of_two(choices), CHOICES_A_PROGRAM)
    _restricted_head[(answers, triton.cdiv(choices, block))](
        hidden,
        rows,
        head,
        candidates,
        logits,
        hidden.stride(0),
        head.stride(0),
        hidden.shape[1],
        choices,
        block,
        min(power_of_two(hidden.shape[1]), 512),
        num_warps=4,
        enable_fp_fusion=True,
    )
    return logits
