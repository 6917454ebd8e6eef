"""The decoder of the Llama family (Llama, Mistral, SmolLM, Qwen2, Qwen3, Gemma 3) in plain torch.

It owns no KV memory: the caller's `Attend` does, so the same code runs whole prompts,
rewound suffixes and trees.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from quail_frames.runtime.models.attention import Attend
from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.layers import rms_norm
from quail_frames.runtime.models.rope import layer_frequencies, rotation
from quail_frames.runtime.models.step import Between, StepShape, between, close_layer, open_layer
from quail_frames.runtime.models.weights import DecoderWeights


class Decoder:
    """A decoder ready to run; calls leave nothing behind.

    Attributes
    ----------
    config, device, dtype
        The model's shape, and where and in what type its weights lie.
    shape
        What the arithmetic of a layer needs to know of the config.
    between
        What runs between two attentions: `step.between`, or the same compiled.
    """

    def __init__(self, config: ModelConfig, weights: DecoderWeights[Tensor]) -> None:
        self.config = config
        self.weights = weights
        self.device = weights.embedding.device
        self.dtype = weights.embedding.dtype
        self.between: Between = between
        self.shape = StepShape(
            config.num_heads, config.num_kv_heads, config.head_dim, config.rms_norm_eps, config.activation
        )
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
        layer, *others = self.weights.layers
        turns = self._turns(positions)
        residual = self._embedded(tokens)
        x = rms_norm(residual, layer.attention_norm, self.shape.eps)
        qkv = open_layer(self.shape, layer, x, *turns[0])
        for number, following in enumerate(others):
            attended = attend(number, *self._heads(qkv)).flatten(1)
            residual, qkv = self.between(self.shape, layer, following, attended, residual, *turns[number + 1])
            layer = following
        attended = attend(len(others), *self._heads(qkv)).flatten(1)
        if rows is not None:
            residual, attended = residual[rows], attended[rows]
        return close_layer(self.shape, layer, attended, residual, self.weights.norm)[1]

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
