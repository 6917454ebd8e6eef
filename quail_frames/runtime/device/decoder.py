"""The decoder of `quail_frames.runtime.models.decoder`, layer by layer out of the kernels.

A projection that is kept in FP8 takes its input quantised by the operation before it; any other goes to torch's matmul.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import embedding, linear

from quail_frames import kernels
from quail_frames.kernels import Quantized
from quail_frames.runtime.device.attention import KernelAttention
from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.rope import layer_frequencies
from quail_frames.runtime.models.weights import BlockScaled, DecoderWeights, LayerWeights, Matrix

FEW_CHOICES = 64
"""Up to so many vocabulary rows are multiplied answer by answer; more of them by one matmul of all answers."""
HEAD_ROWS = 256
"""Answers whose whole vocabulary is computed at a time, where a log-sum-exp over it is wanted."""

Input = Tensor | Quantized


class KernelDecoder:
    """A decoder on a device; calls leave nothing behind but K and V in the arena.

    Attributes
    ----------
    config, device, dtype
        The model's shape, and where and in what type all but its FP8 weights lie.
    """

    def __init__(self, config: ModelConfig, weights: DecoderWeights[Matrix]) -> None:
        self.config = config
        self.weights = weights
        self.device = weights.embedding.device
        self.dtype = weights.embedding.dtype
        self._rope = _rope_tables(config, self.device)
        self._scale = torch.tensor(config.embedding_scale, dtype=self.dtype, device=self.device)

    @torch.inference_mode()
    def hidden(self, tokens: Tensor, positions: Tensor, attention: KernelAttention, rows: Tensor) -> Tensor:
        """States after the final norm at `rows` (R,): (R, hidden_size). `tokens` and `positions` (T,) int32."""
        layers = self.weights.layers
        states = embedding(tokens, self.weights.embedding)
        states = states if self.config.embedding_scale == 1.0 else states * self._scale
        x, residual = self._norm(states, None, layers[0].attention_norm, layers[0].qkv)
        for number, layer in enumerate(layers):
            attended = self._attended(number, layer, x, positions, attention)
            last = number + 1 == len(layers)
            if last:
                attended, residual = _chosen(attended, rows), residual[rows]
            following = None if last else layers[number + 1]
            x, residual = self._mlp(layer, following, attended, residual)
        assert isinstance(x, Tensor)
        return x

    @torch.inference_mode()
    def logits(self, hidden: Tensor, token_ids: Tensor) -> Tensor:
        """Scores (R, N) float32 of these vocabulary rows (N,) int64 for states (R, hidden_size)."""
        if len(token_ids) > FEW_CHOICES:
            return linear(hidden.to(torch.float32), self.weights.head[token_ids].to(torch.float32))
        rows = torch.arange(len(hidden), device=self.device)
        return kernels.restricted_head(hidden, rows, self.weights.head, token_ids.repeat(len(hidden), 1))

    @torch.inference_mode()
    def normalizer(self, hidden: Tensor) -> Tensor:
        """Log-sum-exp over the whole vocabulary (R,) float32."""
        parts = [linear(part, self.weights.head).to(torch.float32).logsumexp(dim=1) for part in hidden.split(HEAD_ROWS)]
        return torch.cat(parts) if parts else hidden.new_zeros(0, dtype=torch.float32)

    def _attended(
        self, number: int, layer: LayerWeights[Matrix], x: Input, positions: Tensor, attention: KernelAttention
    ) -> Input:
        config, norms = self.config, layer.qk_norm
        q, k, v = kernels.qk_norm_rope_write(
            self._project(x, layer.qkv, layer.qkv_bias),
            config.num_heads,
            config.num_kv_heads,
            positions,
            self._rope[number],
            None if norms is None else norms[0],
            None if norms is None else norms[config.num_heads],
            config.rms_norm_eps,
            *attention.store(number),
            attention.slots,
        )
        return attention.attend(number, q, k, v, quantize=isinstance(layer.output, BlockScaled))

    def _mlp(
        self, layer: LayerWeights[Matrix], following: LayerWeights[Matrix] | None, attended: Input, residual: Tensor
    ) -> tuple[Input, Tensor]:
        """The rest of a layer, and what the following one begins with (the final states where there is none)."""
        out = self._normed(self._project(attended, layer.output, layer.output_bias), layer.attended_norm)
        x, residual = self._norm(out, residual, layer.mlp_norm, layer.gate_up)
        gate_up = self._project(x, layer.gate_up, layer.gate_up_bias)
        activate = kernels.silu_mul_quantize if isinstance(layer.down, BlockScaled) else kernels.silu_mul
        inner = activate(gate_up, self.config.activation)
        out = self._normed(self._project(inner, layer.down, layer.down_bias), layer.down_norm)
        if following is None:
            return kernels.add_rms_norm(out, residual, self.weights.norm, self.config.rms_norm_eps)
        return self._norm(out, residual, following.attention_norm, following.qkv)

    def _norm(self, x: Tensor, residual: Tensor | None, weight: Tensor, reader: Matrix) -> tuple[Input, Tensor]:
        """Norm of the new residual, in the form that the projection `reader` takes, and the residual."""
        norm = kernels.add_rms_norm_quantize if isinstance(reader, BlockScaled) else kernels.add_rms_norm
        return norm(x, residual, weight, self.config.rms_norm_eps)

    def _normed(self, x: Tensor, weight: Tensor | None) -> Tensor:
        return x if weight is None else kernels.add_rms_norm(x, None, weight, self.config.rms_norm_eps)[0]

    def _project(self, x: Input, matrix: Matrix, bias: Tensor | None) -> Tensor:
        if isinstance(matrix, BlockScaled):
            assert isinstance(x, Quantized)
            out = kernels.block_scaled_matmul(x, matrix.values, matrix.scales, self.dtype)
            return out if bias is None else out + bias
        assert isinstance(x, Tensor)
        return linear(x, matrix, bias)


def _chosen(x: Input, rows: Tensor) -> Input:
    """Rows of either form."""
    return Quantized(_e4m3_rows(x.values, rows), x.scales[rows]) if isinstance(x, Quantized) else x[rows]


def _e4m3_rows(values: Tensor, rows: Tensor) -> Tensor:
    """Rows by their bytes: not every torch indexes e4m3 on every device."""
    return values.view(torch.uint8)[rows].view(values.dtype)


def _rope_tables(config: ModelConfig, device: torch.device) -> tuple[Tensor | None, ...]:
    """Cosines and sines of every position for each layer; layers that turn alike share a table."""
    frequencies = layer_frequencies(config, torch.device("cpu"))
    made: dict[int, Tensor] = {}
    for turning in frequencies:
        if turning is not None and id(turning) not in made:
            made[id(turning)] = kernels.rope_table(turning, config.context_length).to(device)
    return tuple(None if turning is None else made[id(turning)] for turning in frequencies)
