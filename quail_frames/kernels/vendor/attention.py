"""Prefix and suffix attention by FlashAttention (Dao 2023, arXiv 2307.08691; Shah et al. 2024, arXiv 2407.08608).

FlashAttention 3 (Hopper) reads pages of any size; FlashAttention 2 only pages of 256 tokens and more, so it does
suffixes alone. Trees, windows, other types than 16-bit floats and very wide heads go to Triton.
"""

from __future__ import annotations

import torch
from torch import Tensor

from quail_frames.kernels.attention import prefix_attention_reference, suffix_attention_reference
from quail_frames.kernels.attention_inputs import PagedContexts, QueryGroups, SuffixMask, Window

TOLERANCE = 2**-6
WIDEST_HEAD = 256


def flash_3_prefix_attention(
    q: Tensor,
    k_arena: Tensor,
    v_arena: Tensor,
    contexts: PagedContexts,
    groups: QueryGroups,
    scale: float,
    window: Window | None = None,
) -> tuple[Tensor, Tensor]:
    """See `quail_frames.kernels.attention.prefix_attention`."""
    if window is not None or groups.rows is not None or not _taken(q):
        from quail_frames.kernels.device.attention import prefix_attention

        return prefix_attention(q, k_arena, v_arena, contexts, groups, scale, window)
    from flash_attn_interface import flash_attn_with_kvcache

    paged = (arena.unflatten(0, (-1, contexts.page_size)) for arena in (k_arena, v_arena))
    out, lse, *_ = flash_attn_with_kvcache(
        *(q, *paged),
        cache_seqlens=contexts.lengths,
        page_table=contexts.table(),
        cu_seqlens_q=groups.device_offsets,
        max_seqlen_q=groups.longest(),
        softmax_scale=scale,
        causal=False,
        return_softmax_lse=True,
    )
    # What it says of a context without tokens differs between versions.
    counts = groups.device_offsets.diff()
    empty = (contexts.lengths == 0).repeat_interleave(counts, output_size=len(q))[:, None]
    return out.masked_fill(empty[..., None], 0.0), lse.t().masked_fill(empty, -torch.inf)


def flash_3_suffix_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    groups: QueryGroups,
    scale: float,
    mask: SuffixMask | None = None,
    window: Window | None = None,
) -> tuple[Tensor, Tensor]:
    """See `quail_frames.kernels.attention.suffix_attention`."""
    if mask is not None or window is not None or not _taken(q):
        return _triton_suffix(q, k, v, groups, scale, mask, window)
    from flash_attn_interface import flash_attn_varlen_func

    offsets, longest = groups.device_offsets, groups.longest()
    out, lse = flash_attn_varlen_func(
        *(q, k, v, offsets, offsets),
        max_seqlen_q=longest,
        max_seqlen_k=longest,
        softmax_scale=scale,
        causal=True,
        return_attn_probs=True,
    )
    return out, lse.t()


def flash_2_suffix_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    groups: QueryGroups,
    scale: float,
    mask: SuffixMask | None = None,
    window: Window | None = None,
) -> tuple[Tensor, Tensor]:
    """See `quail_frames.kernels.attention.suffix_attention`."""
    if mask is not None or window is not None or not _taken(q):
        return _triton_suffix(q, k, v, groups, scale, mask, window)
    from flash_attn import flash_attn_varlen_func

    offsets, longest = groups.device_offsets, groups.longest()
    out, lse, _ = flash_attn_varlen_func(
        *(q, k, v, offsets, offsets, longest, longest), softmax_scale=scale, causal=True, return_attn_probs=True
    )
    return out, lse.t()


def check_flash_3_prefix(device: torch.device) -> str | None:
    """What is wrong with `flash_3_prefix_attention` on the device; None if nothing is."""
    q, k, v, groups = _batch(device)
    pages = torch.randperm(len(k) // 16, generator=torch.Generator().manual_seed(1)).int().to(device)
    lengths = torch.tensor([37, 0, 120], dtype=torch.int32, device=device)
    contexts = PagedContexts(pages, torch.tensor([0, 3, 3], device=device), lengths)
    arguments = (q, k, v, contexts, groups, 0.1)
    return _difference(flash_3_prefix_attention(*arguments), prefix_attention_reference(*arguments))


def check_flash_3_suffix(device: torch.device) -> str | None:
    """What is wrong with `flash_3_suffix_attention` on the device; None if nothing is."""
    arguments = (*_batch(device), 0.1)
    return _difference(flash_3_suffix_attention(*arguments), suffix_attention_reference(*arguments))


def check_flash_2_suffix(device: torch.device) -> str | None:
    """What is wrong with `flash_2_suffix_attention` on the device; None if nothing is."""
    arguments = (*_batch(device), 0.1)
    return _difference(flash_2_suffix_attention(*arguments), suffix_attention_reference(*arguments))


def _taken(q: Tensor) -> bool:
    return q.dtype in (torch.bfloat16, torch.float16) and q.shape[-1] <= WIDEST_HEAD and q.shape[-1] % 8 == 0


def _batch(device: torch.device) -> tuple[Tensor, Tensor, Tensor, QueryGroups]:
    """192 tokens in three groups, 8 query and 2 KV heads of 128."""
    generator = torch.Generator(device).manual_seed(0)
    q, k, v = (torch.randn(192, heads, 128, generator=generator, device=device).bfloat16() for heads in (8, 2, 2))
    return q, k, v, QueryGroups.of([150, 5, 37], device)


def _difference(got: tuple[Tensor, Tensor], wanted: tuple[Tensor, Tensor]) -> str | None:
    for name, ours, reference in zip(("output", "log-sum-exp"), got, wanted, strict=True):
        if ours.shape != reference.shape:
            return f"{name} has shape {tuple(ours.shape)}, not {tuple(reference.shape)}"
        if not torch.allclose(ours.float(), reference.float(), rtol=TOLERANCE, atol=TOLERANCE):
            return f"{name} differs from the reference"
    return None


def _triton_suffix(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    groups: QueryGroups,
    scale: float,
    mask: SuffixMask | None,
    window: Window | None,
) -> tuple[Tensor, Tensor]:
    from quail_frames.kernels.device.attention import suffix_attention

    return suffix_attention(q, k, v, groups, scale, mask, window)
