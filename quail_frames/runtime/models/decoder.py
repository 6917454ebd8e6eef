"""The decoder of the Llama family (Llama, Mistral, SmolLM2, Qwen2, Qwen3) in plain torch.

One definition serves CPU and CUDA. It owns no KV memory: the caller's `Attend` does, so
the same code runs whole prompts, rewound suffixes and trees.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from quail_frames.runtime.models.attention import Attend
from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.layers import add_rms_norm, rms_norm, silu_multiply
from quail_frames.runtime.models.rope import inverse_frequencies, rotate, rotation
from quail_frames.runtime.models.weights import DecoderWeights, LayerWeights


class Decoder:
    """A decoder ready to run, stateless between calls.

    Attributes
    ----------
    config, device, dtype
        The model's shape, and where and in what type its weights lie.
    """

    def __init__(self, config: ModelConfig, weights: DecoderWeights) -> None:
        self.config = config
        self.weights = weights
        self.device = weights.embedding.device
        self.dtype = weights.embedding.dtype
        self._frequencies = inverse_frequencies(config, self.device)

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
        eps, layers = self.config.rms_norm_eps, self.weights.layers
        cos, sin = rotation(positions, self._frequencies)
        residual = embedding(tokens, self.weights.embedding)
        x = rms_norm(residual, layers[0].attention_norm, eps)
        for number, layer in enumerate(layers):
            attended = attend(number, *self._qkv(layer, x, cos, sin)).flatten(1)
            last = number + 1 == len(layers)
            if last and rows is not None:
                residual, attended = residual[rows], attended[rows]
            attended = linear(attended, layer.output, layer.output_bias)
            residual, x = add_rms_norm(residual, attended, layer.mlp_norm, eps)
            following = self.weights.norm if last else layers[number + 1].attention_norm
            residual, x = add_rms_norm(residual, _mlp(layer, x), following, eps)
        return x

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

    def _qkv(self, layer: LayerWeights, x: Tensor, cos: Tensor, sin: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """q (T, heads, head_dim), k and v (T, KV heads, head_dim), with QK-norm and RoPE."""
        heads, kv_heads = self.config.num_heads, self.config.num_kv_heads
        qkv = linear(x, layer.qkv, layer.qkv_bias).view(len(x), heads + 2 * kv_heads, self.config.head_dim)
        qk, v = qkv.split([heads + kv_heads, kv_heads], dim=1)
        if layer.qk_norm is not None:
            qk = rms_norm(qk, layer.qk_norm, self.config.rms_norm_eps)
        q, k = rotate(qk, cos, sin).split([heads, kv_heads], dim=1)
        return q, k, v


def _mlp(layer: LayerWeights, x: Tensor) -> Tensor:
    return linear(silu_multiply(linear(x, layer.gate_up, layer.gate_up_bias)), layer.down, layer.down_bias)
