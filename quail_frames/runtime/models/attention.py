"""Plain causal attention: the reference that paged and tree attention are tested against."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

Attend = Callable[[int, Tensor, Tensor, Tensor], Tensor]
"""`attend(layer, q, k, v)`: q (tokens, heads, head_dim), k and v (tokens, KV heads, head_dim), RoPE and QK-norm
already applied to q and k; gives (tokens, heads, head_dim). It owns the KV memory and the mask."""


def causal_attention(lengths: Sequence[int] | None = None, windows: Sequence[int | None] | None = None) -> Attend:
    """Attention of each token to itself and those before it, in its own sequence.

    Parameters
    ----------
    lengths
        Lengths of the sequences that stand one after another in the batch, in tokens; None for one sequence.
    windows
        How many tokens back, itself included, each layer sees (None: all); None for no windows.

    Examples
    --------
    >>> attend = causal_attention([2, 3])
    >>> q, kv = torch.zeros(5, 4, 8), torch.zeros(5, 2, 8)
    >>> attend(0, q, kv, kv).shape
    torch.Size([5, 4, 8])
    """

    def attend(layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        sizes = [len(q)] if lengths is None else list(lengths)
        parts = zip(q.split(sizes), k.split(sizes), v.split(sizes), strict=True)
        window = None if windows is None else windows[layer]
        return torch.cat([_one_sequence(*part, window) for part in parts])

    return attend


def _one_sequence(q: Tensor, k: Tensor, v: Tensor, window: int | None) -> Tensor:
    grouped = q.shape[1] != k.shape[1]
    mask = None if window is None else torch.ones(len(q), len(q), dtype=torch.bool).tril().triu(1 - window)
    q, k, v = (x.transpose(0, 1).unsqueeze(0) for x in (q, k, v))
    out = functional.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped)
    return out.squeeze(0).transpose(0, 1)
