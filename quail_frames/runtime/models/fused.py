"""`step.between` compiled by `torch.compile`, which fuses the elementwise groups between the matrix products.

It needs a C++ compiler, and takes seconds once in a process (fewer where Inductor's cache,
`TORCHINDUCTOR_CACHE_DIR`, has seen the model), so that only long runs repay it.
"""

from __future__ import annotations

import warnings
from typing import Literal

import torch
from torch import Tensor

from quail_frames.runtime.models.decoder import Decoder
from quail_frames.runtime.models.step import Between, Layer, StepShape, between

Fuse = Literal["auto", "always", "never"]

REPAID_AFTER = 1_000_000_000
"""Tokens x layers x hidden size after which `auto` compiles: 60,000 tokens of SmolLM2-135M. The compiler takes about
9 seconds of a core; in float32 on AVX2 a token saves 0.2 ms of 3."""
FEWEST = 64
"""Smaller batches are not fused: checking that the compiled code fits costs more than it saves."""
TRIED = 1024
"""Tokens of the first, compiling call: Inductor shares out loops between threads by the size it sees first."""


class Fuser:
    """Swaps a decoder's `between` for the compiled one once that pays; without a compiler it never does."""

    def __init__(self, decoder: Decoder, fuse: Fuse) -> None:
        self._decoder = decoder
        config = decoder.config
        self._work_per_token = config.num_layers * config.hidden_size
        self._left = 0 if fuse == "always" else REPAID_AFTER
        self._waiting = fuse != "never" and decoder.device.type == "cpu" and config.num_layers > 1

    def before(self, tokens: int) -> None:
        """A batch of so many tokens is about to run."""
        if self._waiting and self._left <= 0:
            self._waiting = False
            self._decoder.between = compiled_between(self._decoder) or between
        self._left -= tokens * self._work_per_token


def compiled_between(decoder: Decoder) -> Between | None:
    """`between` compiled for this decoder and any number of tokens; None where it cannot be compiled here."""
    compiled: Between = torch.compile(between, fullgraph=True)

    def fused(
        shape: StepShape,
        layer: Layer,
        following: Layer,
        attended: Tensor,
        residual: Tensor,
        cos: Tensor,
        sin: Tensor,
    ) -> tuple[Tensor, Tensor]:
        run = compiled if len(residual) >= FEWEST else between
        return run(shape, layer, following, attended, residual, cos, sin)

    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            _compile(decoder, compiled)
    except Exception:  # no compiler, no headers, a platform that Inductor does not know: the plain path is always there
        return None
    return fused


@torch.inference_mode()
def _compile(decoder: Decoder, compiled: Between) -> None:
    config, layers = decoder.config, decoder.weights.layers
    attended = torch.zeros(TRIED, config.num_heads * config.head_dim, dtype=decoder.dtype)
    residual = torch.zeros(TRIED, config.hidden_size, dtype=decoder.dtype)
    cos, sin = torch.zeros(2, TRIED, 1, config.head_dim // 2).unbind()
    for tensor in (attended, residual, cos, sin):
        torch._dynamo.maybe_mark_dynamic(tensor, 0)
    compiled(decoder.shape, layers[0], layers[1], attended, residual, cos, sin)
