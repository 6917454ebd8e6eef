"""Attention of one batch by the kernels: K and V into the arena's pages, shared contexts read once, parts merged."""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor

from quail_frames import kernels
from quail_frames.kernels import PagedContexts, Quantized, QueryGroups, SuffixMask, Window
from quail_frames.runtime.attention import KvArena
from quail_frames.runtime.device.plan import DevicePlan
from quail_frames.runtime.kv.pages import PAGE


class KernelAttention:
    """Attention of a planned batch whose arrays lie on the device.

    `windows` says how many tokens back each layer sees (None: all). With `unified` a plan's contexts are one per ask.
    """

    def __init__(
        self,
        plan: DevicePlan,
        tensors: dict[str, Tensor],
        arena: KvArena,
        windows: Sequence[int | None],
        unified: bool = False,
    ) -> None:
        self.slots, self._copies, self._arena, self._windows = tensors["slots"], tensors["copies"], arena, windows
        self._positions, self._unified = tensors["positions"], unified
        self._asks = QueryGroups(plan.asks, tensors["asks"])
        self._mask = SuffixMask(tensors["until"], tensors.get("again")) if "until" in tensors else None
        self._contexts: PagedContexts | None = None
        if plan.readers is not None:
            self._contexts = PagedContexts(tensors["pages"], tensors["starts"], tensors["lengths"], PAGE)
            if not unified:
                self._readers = QueryGroups(plan.readers, tensors["readers"], tensors.get("order"))

    def store(self, layer: int) -> tuple[Tensor, Tensor]:
        """The arena's K and V of a layer, (slots, KV heads, head_dim); the caller writes what `slots` says."""
        return self._arena.k[layer], self._arena.v[layer]

    def attend(self, layer: int, q: Tensor, k: Tensor, v: Tensor, quantize: bool) -> Tensor | Quantized:
        """(T, heads x head_dim), or its FP8 form; K and V of the batch are already in the arena.

        `q` (T, heads, head_dim), `k` and `v` (T, KV heads, head_dim).
        """
        keys, values = self.store(layer)
        if self._copies.shape[1]:
            for kept in (keys, values):
                kept[self._copies[1]] = kept[self._copies[0]]
        width, scale = self._windows[layer], q.shape[-1] ** -0.5
        window = None if width is None else Window(self._positions, width)
        if self._contexts is None:
            return _flat(kernels.suffix_attention(q, k, v, self._asks, scale, self._mask, window)[0], quantize)
        if self._unified:
            paged = (keys, values, self._contexts, self._asks)
            return _flat(kernels.unified_attention(q, k, v, *paged, scale, self._mask, window)[0], quantize)
        prefix = kernels.prefix_attention(q, keys, values, self._contexts, self._readers, scale, window)
        suffix = kernels.suffix_attention(q, k, v, self._asks, scale, self._mask, window)
        if quantize:
            return kernels.merge_attention_quantize(*prefix, *suffix)
        return kernels.merge_attention(*prefix, *suffix).flatten(1)


def _flat(attended: Tensor, quantize: bool) -> Tensor | Quantized:
    return kernels.quantize(attended.flatten(1)) if quantize else attended.flatten(1)
