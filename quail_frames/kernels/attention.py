"""Attention of a batch of asks over paged contexts and their own suffixes, with log-sum-exp.

Prefix attention lets all asks of a context read its KV once; suffix attention is causal or tree-masked inside each
ask; `merge_attention` joins the two (tree attention). Unified attention does both parts ask by ask in one pass.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quail_frames.kernels.attention_inputs import PagedContexts, QueryGroups, SuffixMask, Window
from quail_frames.kernels.dispatch import implementation
from quail_frames.kernels.quantize import wide_dtype

Output = tuple[Tensor, Tensor]
"""`(out, lse)`: (tokens, heads, head_dim) in the dtype of q and (tokens, heads) float32, natural logarithm.

A query that sees no key has out 0 and lse -inf.
"""


def prefix_attention(
    q: Tensor,
    k_arena: Tensor,
    v_arena: Tensor,
    contexts: PagedContexts,
    groups: QueryGroups,
    scale: float,
    window: Window | None = None,
) -> Output:
    """Each query over all keys of its group's context (all stand before it).

    `q` (tokens, heads, head_dim); `k_arena`, `v_arena` (slots, kv_heads, head_dim); group g reads context g. Every
    token must be in a group: one that reads no context is in a group whose context has length 0.
    """
    run = implementation("prefix_attention", q.device)
    out, lse = run(q, k_arena, v_arena, contexts, groups, scale, window)
    return out, lse


def suffix_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    groups: QueryGroups,
    scale: float,
    mask: SuffixMask | None = None,
    window: Window | None = None,
) -> Output:
    """Each query over the keys of its own group: those before it and itself, or those `mask` lets it see.

    `q` (tokens, heads, head_dim); `k`, `v` (tokens, kv_heads, head_dim).
    """
    out, lse = implementation("suffix_attention", q.device)(q, k, v, groups, scale, mask, window)
    return out, lse


def unified_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_arena: Tensor,
    v_arena: Tensor,
    contexts: PagedContexts,
    groups: QueryGroups,
    scale: float,
    mask: SuffixMask | None = None,
    window: Window | None = None,
) -> Output:
    """Prefix and suffix attention in one pass: group g is one ask, `contexts` name its context (repeats allowed)."""
    run = implementation("unified_attention", q.device)
    out, lse = run(q, k, v, k_arena, v_arena, contexts, groups, scale, mask, window)
    return out, lse


def prefix_attention_reference(
    q: Tensor,
    k_arena: Tensor,
    v_arena: Tensor,
    contexts: PagedContexts,
    groups: QueryGroups,
    scale: float,
    window: Window | None = None,
) -> Output:
    """See `prefix_attention`."""
    out, lse = _empty(q)
    token = torch.arange(len(q), device=q.device) if groups.rows is None else groups.rows.long()
    for group, (start, end) in enumerate(groups.bounds()):
        slots, rows = contexts.slots(group), token[start:end]
        visible = _in_context(len(slots), rows, window)
        out[rows], lse[rows] = _attend(q[rows], k_arena[slots], v_arena[slots], visible, scale)
    return out, lse


def suffix_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    groups: QueryGroups,
    scale: float,
    mask: SuffixMask | None = None,
    window: Window | None = None,
) -> Output:
    """See `suffix_attention`."""
    out, lse = _empty(q)
    for start, end in groups.bounds():
        visible = _in_suffix(start, end, mask, window, q.device)
        out[start:end], lse[start:end] = _attend(q[start:end], k[start:end], v[start:end], visible, scale)
    return out, lse


def unified_attention_reference(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    k_arena: Tensor,
    v_arena: Tensor,
    contexts: PagedContexts,
    groups: QueryGroups,
    scale: float,
    mask: SuffixMask | None = None,
    window: Window | None = None,
) -> Output:
    """See `unified_attention`."""
    out, lse = _empty(q)
    for group, (start, end) in enumerate(groups.bounds()):
        slots = contexts.slots(group)
        keys = torch.cat([k_arena[slots].to(k.dtype), k[start:end]])
        values = torch.cat([v_arena[slots].to(v.dtype), v[start:end]])
        before = _in_context(len(slots), torch.arange(start, end, device=q.device), window)
        visible = torch.cat([before, _in_suffix(start, end, mask, window, q.device)], dim=1)
        out[start:end], lse[start:end] = _attend(q[start:end], keys, values, visible, scale)
    return out, lse


def _empty(q: Tensor) -> Output:
    return torch.zeros_like(q), q.new_full(q.shape[:2], -torch.inf, dtype=wide_dtype(q))


def _in_context(keys: int, rows: Tensor, window: Window | None) -> Tensor:
    if window is None:
        return torch.ones(len(rows), keys, dtype=torch.bool, device=rows.device)
    return window.positions[rows][:, None] - torch.arange(keys, device=rows.device)[None] < window.width


def _in_suffix(start: int, end: int, mask: SuffixMask | None, window: Window | None, device: torch.device) -> Tensor:
    token = torch.arange(start, end, device=device)
    query, key = token[:, None], token[None, :]
    visible = key <= query
    if mask is not None:
        visible = visible & mask.sees(query, start, end)
    if window is not None:
        positions = window.positions[start:end]
        visible = visible & (positions[:, None] - positions[None, :] < window.width)
    return visible


def _attend(q: Tensor, k: Tensor, v: Tensor, visible: Tensor, scale: float) -> Output:
    wide = wide_dtype(q)
    kv_heads = k.shape[1]
    grouped = q.to(wide).unflatten(1, (kv_heads, -1))
    scores = torch.einsum("qkgd,nkd->qkgn", grouped, k.to(wide)) * scale
    scores = scores.masked_fill(~visible[:, None, None, :], -torch.inf)
    lse = scores.logsumexp(dim=-1)
    weights = (scores - lse.clamp(min=torch.finfo(torch.float32).min)[..., None]).exp()
    out = torch.einsum("qkgn,nkd->qkgd", weights, v.to(wide))
    return out.flatten(1, 2).to(q.dtype), lse.flatten(1, 2)
