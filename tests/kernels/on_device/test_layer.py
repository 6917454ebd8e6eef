"""The kernels fit together: FP8 decoder layers of them, with rewound KV, give what the references give.

Two layers encode documents into pages; asks then read them as shared contexts. Under the interpreter the last step of
the quantising operations comes from torch (its cast to e4m3 rounds wrongly there); on a GPU everything is Triton's.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from quail_frames import kernels
from quail_frames.kernels import PagedContexts, Quantized, QueryGroups
from tests.kernels.comparison import DEVICE, close, randn

HIDDEN, MLP, HEADS, KV_HEADS, HEAD_DIM, LAYERS, PAGE, EPS = 64, 96, 4, 2, 16, 2, 16, 1e-6
FP8_NOISE = 0.05
"""Values that differ in their last float32 bits may round to neighbouring e4m3 numbers, 1/16 apart."""
OURS = {"all": "triton"}
if DEVICE.type != "cuda":
    quantising = ("quantize", "add_rms_norm_quantize", "silu_mul_quantize", "merge_attention_quantize")
    OURS |= dict.fromkeys(quantising, "torch")


@dataclass(frozen=True)
class Weight:
    values: Tensor
    scales: Tensor

    @staticmethod
    def random(seed: int, outputs: int, inputs: int) -> Weight:
        values = randn(seed, outputs, inputs).to(torch.float8_e4m3fn)
        scales = (randn(seed + 1, -(-outputs // 128), -(-inputs // 128)).abs() + 0.5) / inputs**0.5
        return Weight(values, scales)

    def __call__(self, x: Quantized) -> Tensor:
        return kernels.block_scaled_matmul(x, self.values, self.scales, torch.float32)


@dataclass(frozen=True)
class Layer:
    qkv: Weight
    output: Weight
    gate_up: Weight
    down: Weight
    norms: tuple[Tensor, Tensor, Tensor, Tensor]

    @staticmethod
    def random(seed: int) -> Layer:
        width = HEADS * HEAD_DIM
        return Layer(
            Weight.random(seed, width + 2 * KV_HEADS * HEAD_DIM, HIDDEN),
            Weight.random(seed + 2, HIDDEN, width),
            Weight.random(seed + 4, 2 * MLP, HIDDEN),
            Weight.random(seed + 6, HIDDEN, MLP),
            tuple(randn(seed + i, size) for i, size in enumerate((HIDDEN, HIDDEN, HEAD_DIM, HEAD_DIM), start=8)),
        )


@dataclass(frozen=True)
class Step:
    """What one batch is told: where its tokens stand, where their KV goes, what they read."""

    positions: Tensor
    slots: Tensor
    asks: QueryGroups
    readers: QueryGroups
    contexts: PagedContexts


def forward(layers: list[Layer], rope: Tensor, arena: Tensor, hidden: Tensor, step: Step) -> Tensor:
    """Hidden states after the last layer; the batch's K and V go into `arena` (layers, 2, slots, heads, head_dim)."""
    residual: Tensor | None = None
    scale = HEAD_DIM**-0.5
    for layer, pages in zip(layers, arena, strict=True):
        x, residual = kernels.add_rms_norm_quantize(hidden, residual, layer.norms[0], EPS)
        q, k, v = kernels.qk_norm_rope_write(
            *(layer.qkv(x), HEADS, KV_HEADS, step.positions, rope, *layer.norms[2:], EPS, *pages, step.slots)
        )
        prefix = kernels.prefix_attention(q, *pages, step.contexts, step.readers, scale)
        suffix = kernels.suffix_attention(q, k, v, step.asks, scale)
        hidden = layer.output(kernels.merge_attention_quantize(*prefix, *suffix))
        x, residual = kernels.add_rms_norm_quantize(hidden, residual, layer.norms[1], EPS)
        hidden = layer.down(kernels.silu_mul_quantize(layer.gate_up(x)))
    assert residual is not None
    return hidden + residual


def paged(lengths: list[int], pages: Tensor) -> PagedContexts:
    counts = -(-np.array(lengths) // PAGE)
    starts = torch.from_numpy(np.cumsum(counts) - counts).to(DEVICE)
    return PagedContexts(pages, starts, torch.tensor(lengths, dtype=torch.int32, device=DEVICE), PAGE)


def encode_then_ask(layers: list[Layer], documents: list[int], asks: list[tuple[int, int]]) -> tuple[Tensor, Tensor]:
    """States of the documents' tokens, then of each ask's (document, tokens) read over its document's pages."""
    rope = kernels.rope_table(100.0 ** -(torch.arange(0, HEAD_DIM, 2) / HEAD_DIM), 128).to(DEVICE)
    pages = torch.tensor([4, 1, 3, 0, 2], dtype=torch.int32, device=DEVICE)
    contexts = paged(documents, pages)
    arena = torch.full((LAYERS, 2, 5 * PAGE, KV_HEADS, HEAD_DIM), torch.nan, device=DEVICE)
    written = QueryGroups.of(documents, DEVICE)
    nothing = paged([0] * len(documents), pages)
    encoding = Step(
        torch.cat([torch.arange(n, device=DEVICE) for n in documents]),
        torch.cat([contexts.slots(i) for i in range(len(documents))]),
        *(written, written, nothing),
    )
    states = forward(layers, rope, arena, randn(50, sum(documents), HIDDEN), encoding)

    before, lengths = arena.clone(), np.array([tokens for _, tokens in asks])
    document_of = np.repeat([document for document, _ in asks], lengths)
    rows = np.argsort(document_of, kind="stable")
    readers = QueryGroups.of(np.bincount(document_of, minlength=len(documents)), DEVICE, rows)
    positions = torch.cat([documents[d] + torch.arange(n) for d, n in asks]).to(DEVICE)
    dropped = torch.full((int(lengths.sum()),), -1, device=DEVICE)
    asking = Step(positions, dropped, QueryGroups.of(lengths, DEVICE), readers, contexts)
    answers = forward(layers, rope, arena, randn(51, int(lengths.sum()), HIDDEN), asking)
    assert torch.equal(arena.nan_to_num(7.0), before.nan_to_num(7.0)), "an ask leaves no KV behind"
    return states, answers


def test_layers_of_kernels_give_what_layers_of_references_give() -> None:
    layers = [Layer.random(20 * number) for number in range(LAYERS)]
    documents, asks = [18, 5], [(1, 2), (0, 3), (1, 1), (0, 4)]
    with kernels.using(**OURS):
        ours = encode_then_ask(layers, documents, asks)
    with kernels.using(all="torch"):
        wanted = encode_then_ask(layers, documents, asks)
    for got, reference in zip(ours, wanted, strict=True):
        assert got.isfinite().all()
        close(got, reference, FP8_NOISE)
        assert (got - reference).square().mean() < (FP8_NOISE / 10) ** 2 * reference.square().mean()
