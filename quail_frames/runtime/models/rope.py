"""Rotary position embeddings (Su et al. 2021, arXiv:2104.09864) in the half-split form of Llama."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from quail_frames.runtime.models.config import ModelConfig, RopeScaling


def inverse_frequencies(config: ModelConfig, device: torch.device) -> Tensor:
    """Radians per position of every rotated pair, float32, shape (head_dim / 2,); of the layers without a window."""
    frequencies = _plain(config, config.rope_theta, device)
    return frequencies if config.rope_scaling is None else _scaled(frequencies, config.rope_scaling)


def layer_frequencies(config: ModelConfig, device: torch.device) -> tuple[Tensor | None, ...]:
    """`inverse_frequencies` of each layer, one tensor for layers that turn alike; None: the layer has no RoPE."""
    common = inverse_frequencies(config, device)
    local = common if config.local_rope_theta is None else _plain(config, config.local_rope_theta, device)
    rotated = config.rotated_layers or (True,) * config.num_layers
    slides = config.sliding_layers or (False,) * config.num_layers
    return tuple((local if s else common) if r else None for r, s in zip(rotated, slides, strict=True))


def _plain(config: ModelConfig, theta: float, device: torch.device) -> Tensor:
    exponents = torch.arange(0, config.head_dim, 2, dtype=torch.float32, device=device) / config.head_dim
    return 1.0 / (theta**exponents)


def _scaled(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    if scaling.kind == "linear":
        return frequencies / scaling.factor
    if scaling.kind == "factors":
        return frequencies / torch.tensor(scaling.factors, dtype=torch.float32, device=frequencies.device)
    return _llama3_scaled(frequencies, scaling)


def _llama3_scaled(frequencies: Tensor, scaling: RopeScaling) -> Tensor:
    """Long wavelengths are divided by `factor`, short ones kept, those between blended (Llama 3.1)."""
    turns = scaling.original_max_position_embeddings * frequencies / (2 * math.pi)
    kept = (turns - scaling.low_freq_factor) / (scaling.high_freq_factor - scaling.low_freq_factor)
    kept = kept.clamp(0.0, 1.0)
    return (1 - kept) * frequencies / scaling.factor + kept * frequencies


def rotation(positions: Tensor, frequencies: Tensor) -> tuple[Tensor, Tensor]:
    """Cosines and sines for every token, float32, shape (tokens, 1, head_dim / 2)."""
    angles = (positions.to(torch.float32)[:, None] * frequencies)[:, None, :]
    return angles.cos(), angles.sin()


def rotate(x: Tensor, cos: Tensor, sin: Tensor, *, out: Tensor) -> None:
    """Write `x` (tokens, heads, head_dim), turned by its tokens' angles in float32, to `out`, which may be x."""
    first, second = x.to(torch.float32).chunk(2, dim=-1)
    half = x.shape[-1] // 2
    turned = (first * cos).addcmul_(second, sin, value=-1)
    out[..., half:] = (second * cos).addcmul_(first, sin)
    out[..., :half] = turned
