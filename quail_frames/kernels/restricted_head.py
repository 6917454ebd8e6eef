"""The output head computed only where an answer is read: chosen hidden rows times chosen vocabulary rows.

Read-outs run on the device, so that only answers cross the bus.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quail_frames.kernels.dispatch import implementation
from quail_frames.kernels.quantize import wide_dtype


def restricted_head(hidden: Tensor, rows: Tensor, head: Tensor, candidates: Tensor) -> Tensor:
    """Logits (answers, choices) float32.

    Answer i is read from `hidden[rows[i]]` (tokens, features) against the rows `candidates[i]` of `head` (vocabulary,
    features). `candidates` (answers, choices) int64 is padded with -1, whose logits are -inf.
    """
    logits: Tensor = implementation("restricted_head", hidden.device)(hidden, rows, head, candidates)
    return logits


def restricted_head_reference(hidden: Tensor, rows: Tensor, head: Tensor, candidates: Tensor) -> Tensor:
    """See `restricted_head`."""
    wide = wide_dtype(hidden)
    chosen = head[candidates.clamp(min=0)].to(wide)
    logits = torch.einsum("acf,af->ac", chosen, hidden[rows].to(wide))
    return logits.masked_fill(candidates < 0, -torch.inf)


def read_best(logits: Tensor) -> Tensor:
    """Column of the largest logit of each answer (answers,) int64; the first of equals."""
    return logits.argmax(dim=-1)


def true_false_margins(logits: Tensor, true_tokens: int, pooling: str, temperature: float, bias: float) -> Tensor:
    """Calibrated log-odds of TRUE of each row (answers,) float32; above 0 the answer is TRUE.

    `(pool(TRUE logits) - pool(FALSE logits)) / temperature + bias`; the first `true_tokens` columns of `logits`
    (answers, choices) spell TRUE, the others FALSE, and pool is `max` or `logsumexp`.
    """
    true, false = logits[:, :true_tokens], logits[:, true_tokens:]
    if pooling == "max":
        difference = true.amax(dim=-1) - false.amax(dim=-1)
    else:
        difference = true.logsumexp(dim=-1) - false.logsumexp(dim=-1)
    return difference / temperature + bias
