"""The launches that `gpu_kernels.py` times, each with the bytes it must move and the arithmetic it must do.

Bytes count each input read once and each output written once: what a perfect cache would leave. Attention arithmetic
counts the visible pairs of a query and a key, two matmuls each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from quail_frames import kernels
from quail_frames.kernels import PagedContexts, Quantized, QueryGroups

FP8 = torch.float8_e4m3fn
SCALE = 4 / 128
"""Bytes of scale for each byte of e4m3."""


@dataclass(frozen=True)
class Shape:
    """A batch of `tokens` tokens in asks of `ask_tokens`, shared evenly by `contexts`, through Qwen3-4B's layers."""

    tokens: int = 16384
    contexts: int = 8
    context_tokens: int = 4096
    ask_tokens: int = 32
    hidden: int = 2560
    mlp: int = 9728
    heads: int = 32
    kv_heads: int = 8
    head_dim: int = 128

    @property
    def qkv(self) -> int:
        return (self.heads + 2 * self.kv_heads) * self.head_dim


@dataclass(frozen=True)
class Case:
    """One launch. `arithmetic` names the tensor-core type that bounds it, None where only memory does."""

    name: str
    operation: str
    run: Callable[[], object]
    bytes: float
    flops: float
    arithmetic: Literal["bf16", "fp8"] | None = None


def cases(shape: Shape, device: torch.device) -> Iterator[Case]:
    """All cases; their tensors are made on `device` (`meta` for paper counts) and freed as the iterator moves on."""
    yield from _row_cases(shape, device)
    yield from _matmul_cases(shape, device)
    yield from _attention_cases(shape, device)


def _bf16(device: torch.device, *shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.bfloat16, device=device)


def _row_cases(s: Shape, device: torch.device) -> Iterator[Case]:
    t, width = s.tokens, s.heads * s.head_dim
    x, weight = _bf16(device, t, s.hidden), _bf16(device, s.hidden)
    norm = partial(kernels.add_rms_norm_quantize, x, x, weight, 1e-6)
    yield Case("add_rms_norm_quantize", "add_rms_norm_quantize", norm, t * s.hidden * (7 + SCALE), 0)
    plain = partial(kernels.add_rms_norm, x, x, weight, 1e-6)
    yield Case("add_rms_norm", "add_rms_norm", plain, t * s.hidden * 8, 0)
    gate_up = _bf16(device, t, 2 * s.mlp)
    silu = partial(kernels.silu_mul_quantize, gate_up)
    yield Case("silu_mul_quantize", "silu_mul_quantize", silu, t * s.mlp * (5 + SCALE), 0)
    out, lse = _bf16(device, t, s.heads, s.head_dim), torch.randn(t, s.heads, device=device)
    merge = partial(kernels.merge_attention_quantize, out, lse, out, lse)
    moved = t * (width * (5 + SCALE) + 8 * s.heads)
    yield Case("merge_attention_quantize", "merge_attention_quantize", merge, moved, 0)
    yield _write_case(s, device)
    yield _head_case(s, x, device)


def _write_case(s: Shape, device: torch.device) -> Case:
    t, kv = s.tokens, s.kv_heads * s.head_dim
    arenas = [_bf16(device, t, s.kv_heads, s.head_dim) for _ in range(2)]
    index = torch.arange(t, device=device)
    rope = torch.randn(t, s.head_dim, device=device)
    norm = _bf16(device, s.head_dim)
    qkv = _bf16(device, t, s.qkv)
    run = partial(
        *(kernels.qk_norm_rope_write, qkv, s.heads, s.kv_heads, index, rope, norm, norm, 1e-6, *arenas, index)
    )
    moved = t * (4 * s.qkv + 4 * kv + 4 * s.head_dim + 16)
    return Case("qk_norm_rope_write", "qk_norm_rope_write", run, moved, 0)


def _head_case(s: Shape, x: Tensor, device: torch.device) -> Case:
    answers, choices = -(-s.tokens // s.ask_tokens), 8
    rows = torch.arange(answers, device=device) * s.ask_tokens
    candidates = torch.arange(choices, device=device).repeat(answers, 1)
    run = partial(kernels.restricted_head, x, rows, _bf16(device, 4096, s.hidden), candidates)
    moved = 2 * s.hidden * (answers + choices) + 12 * answers * choices
    return Case("restricted_head, 8 rows an answer", "restricted_head", run, moved, 2 * answers * choices * s.hidden)


def _matmul_cases(s: Shape, device: torch.device) -> Iterator[Case]:
    sizes = {
        "qkv": (s.hidden, s.qkv),
        "output": (s.heads * s.head_dim, s.hidden),
        "gate_up": (s.hidden, 2 * s.mlp),
        "down": (s.mlp, s.hidden),
    }
    for name, (inputs, outputs) in sizes.items():
        x = Quantized(_bf16(device, s.tokens, inputs).to(FP8), torch.rand(s.tokens, inputs // 128, device=device))
        weight = _bf16(device, outputs, inputs).to(FP8)
        scales = torch.rand(-(-outputs // 128), inputs // 128, device=device)
        run = partial(kernels.block_scaled_matmul, x, weight, scales)
        moved = s.tokens * inputs * (1 + SCALE) + outputs * inputs + 2 * s.tokens * outputs
        flops = 2 * s.tokens * inputs * outputs
        yield Case(f"block_scaled_matmul, {name}", "block_scaled_matmul", run, moved, flops, "fp8")


def _attention_cases(s: Shape, device: torch.device) -> Iterator[Case]:
    q = _bf16(device, s.tokens, s.heads, s.head_dim)
    k, v = (_bf16(device, s.tokens, s.kv_heads, s.head_dim) for _ in range(2))
    pages = -(-s.context_tokens // 16)
    arenas = [_bf16(device, s.contexts * pages * 16, s.kv_heads, s.head_dim) for _ in range(2)]
    pair, token = 4 * s.heads * s.head_dim, 4 * s.kv_heads * s.head_dim  # FLOPs a pair; bytes of K and V a token
    queries = s.tokens * (4 * s.heads * s.head_dim + 4 * s.heads)  # q, out and lse
    per_context, asks = s.tokens // s.contexts, s.tokens // s.ask_tokens
    reading = s.contexts * per_context * s.context_tokens
    inside = asks * s.ask_tokens * (s.ask_tokens + 1) // 2

    contexts = _contexts(s, pages, torch.arange(s.contexts), device)
    groups = QueryGroups.of([per_context] * s.contexts, _real(device))
    prefix = partial(kernels.prefix_attention, q, *arenas, contexts, groups, 0.1)
    moved = queries + token * s.contexts * s.context_tokens
    yield Case("prefix_attention, shared", "prefix_attention", prefix, moved, pair * reading, "bf16")

    each = QueryGroups.of([s.ask_tokens] * asks, _real(device))
    suffix = partial(kernels.suffix_attention, q, k, v, each, 0.1)
    yield Case("suffix_attention, asks", "suffix_attention", suffix, queries + token * s.tokens, pair * inside, "bf16")

    document = partial(kernels.suffix_attention, q, k, v, groups, 0.1)
    pairs = s.contexts * per_context * (per_context + 1) // 2
    name = "suffix_attention, documents"
    yield Case(name, "suffix_attention", document, queries + token * s.tokens, pair * pairs, "bf16")

    shared = _contexts(s, pages, torch.arange(asks) * s.contexts // asks, device)
    unified = partial(kernels.unified_attention, q, k, v, *arenas, shared, each, 0.1)
    moved = queries + token * (s.tokens + s.contexts * s.context_tokens)
    yield Case("unified_attention, asks", "unified_attention", unified, moved, pair * (reading + inside), "bf16")


def _contexts(s: Shape, pages: int, context_of: Tensor, device: torch.device) -> PagedContexts:
    lengths = torch.full((len(context_of),), s.context_tokens, dtype=torch.int32)
    order = torch.randperm(s.contexts * pages, generator=torch.Generator().manual_seed(0)).int()
    return PagedContexts(order.to(device), (context_of * pages).to(device), lengths.to(device))


def _real(device: torch.device) -> torch.device:
    return torch.device("cpu") if device.type == "meta" else device
