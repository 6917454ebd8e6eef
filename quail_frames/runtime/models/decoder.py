"""The decoder of the Llama family (Llama, Mistral, SmolLM, Qwen2, Qwen3, Gemma 3) in plain torch.

It owns no KV memory: the caller's `Attend` does, so the same code runs whole prompts,
rewound suffixes and trees.
"""

from __future__ import annotations

from functools import partial

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from quail_frames.runtime.lanes import Alone, Lanes
from quail_frames.runtime.models.attention import Attend
from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.layers import EAGER, Elementwise
from quail_frames.runtime.models.products import PRODUCTS
from quail_frames.runtime.models.rope import layer_frequencies, rotation
from quail_frames.runtime.models.step import Steps, StepShape
from quail_frames.runtime.models.weights import DecoderWeights
from quail_frames.runtime.options import Library


class Decoder:
    """A decoder ready to run; calls leave nothing behind.

    Attributes
    ----------
    config, device, dtype
        The model's shape, and where and in what type its weights lie.
    shape, steps
        What the arithmetic of a layer needs to know of the config, and what lies between two attentions.
    lanes
        What shares out the rows of a batch; calls are then made inside `lanes.call`.
    """

    def __init__(
        self,
        config: ModelConfig,
        weights: DecoderWeights[Tensor],
        library: Library = "torch",
        elementwise: Elementwise = EAGER,
    ) -> None:
        self.config = config
        self.weights = weights
        self.device = weights.embedding.device
        self.dtype = weights.embedding.dtype
        self.lanes: Lanes | Alone = Alone()
        sizes = (config.num_heads, config.num_kv_heads, config.head_dim)
        self.shape = StepShape(*sizes, config.rms_norm_eps, config.activation, PRODUCTS[library], elementwise)
        self.steps = Steps(self.shape)
        self._frequencies = layer_frequencies(config, self.device)

    @torch.inference_mode()
    def hidden(self, tokens: Tensor, positions: Tensor, attend: Attend, rows: Tensor | None = None) -> Tensor:
        """Hidden states after the final norm.

        Parameters
        ----------
        tokens, positions
            Token ids and their places in their prompts, integers of shape (T,).
        attend
            Attention of the batch, see `quail_frames.runtime.models.attention.Attend`.
        rows
            Which tokens' states are wanted, integers of shape (R,); None for all. The last
            layer computes nothing else past its attention.

        Returns
        -------
        Tensor
            Shape (R or T, hidden_size), the decoder's dtype.
        """
        layers, turns = self.weights.layers, self._turns(positions)
        residual, qkv = self._embedded(tokens), self._room(len(tokens))
        self._open(residual, *turns[0], qkv)
        for number, following in enumerate(layers[1:]):
            attended = attend(number, *self._heads(qkv)).flatten(1)
            step = partial(self.steps.between, layers[number], following)
            states = (attended, residual, *turns[number + 1], qkv)
            self.lanes.run([partial(step, *(x[own] for x in states)) for own in self._spans(len(tokens))])
        attended = attend(len(layers) - 1, *self._heads(qkv)).flatten(1)
        if rows is not None:
            residual, attended = residual[rows], attended[rows]
        return self._close(attended, residual)

    def _room(self, tokens: int) -> Tensor:
        """For q, k and v of a layer; every layer writes there."""
        heads = self.shape.heads + 2 * self.shape.kv_heads
        return torch.empty(tokens, heads, self.shape.head_dim, dtype=self.dtype, device=self.device)

    def _open(self, residual: Tensor, cos: Tensor, sin: Tensor, qkv: Tensor) -> None:
        """q, k and v of the first layer."""
        step, states = partial(self.steps.first, self.weights.layers[0]), (residual, cos, sin, qkv)
        self.lanes.run([partial(step, *(x[own] for x in states)) for own in self._spans(len(residual))])

    def _close(self, attended: Tensor, residual: Tensor) -> Tensor:
        """The last layer, and the final norm."""
        layer, out = self.weights.layers[-1], torch.empty_like(residual)

        def run(own: slice) -> None:
            out[own] = self.steps.last(layer, attended[own], residual[own], self.weights.norm)

        self.lanes.run([partial(run, own) for own in self._spans(len(residual))])
        return out

    def _spans(self, rows: int) -> list[slice]:
        return self.lanes.spans(rows, self.steps.task_rows)

    @torch.inference_mode()
    def logits(self, hidden: Tensor, token_ids: Tensor | None = None) -> Tensor:
        """Scores of next tokens, float32.

        Parameters
        ----------
        hidden
            States from `hidden`, shape (R, hidden_size).
        token_ids
            The vocabulary rows to compute, integers of shape (N,); None for the whole vocabulary.

        Returns
        -------
        Tensor
            Shape (R, N) or (R, vocab_size).
        """
        if token_ids is None:
            return linear(hidden, self.weights.head).to(torch.float32)
        # A few rows cost nothing in float32, and bf16 sums would blur the margin between two answers.
        return linear(hidden.to(torch.float32), self.weights.head[token_ids].to(torch.float32))

    def _embedded(self, tokens: Tensor) -> Tensor:
        states = embedding(tokens, self.weights.embedding)
        scale = self.config.embedding_scale
        # Gemma rounds the scale to the type of its weights.
        return states if scale == 1.0 else states * torch.tensor(scale, dtype=self.dtype, device=self.device)

    def _turns(self, positions: Tensor) -> list[tuple[Tensor, Tensor]]:
        """Cosines and sines of each layer; a layer without RoPE turns by nothing."""
        still = torch.zeros(self.shape.head_dim // 2, device=self.device)
        found: dict[int, tuple[Tensor, Tensor]] = {}
        turns = []
        for frequencies in self._frequencies:
            frequencies = still if frequencies is None else frequencies
            if id(frequencies) not in found:
                found[id(frequencies)] = rotation(positions, frequencies)
            turns.append(found[id(frequencies)])
        return turns

    def _heads(self, qkv: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (T, heads, head_dim), k and v (T, KV heads, head_dim)."""
        q, k, v = qkv.split([self.shape.heads, self.shape.kv_heads, self.shape.kv_heads], dim=1)
        return q, k, v
