"""Random weights in a published model's shape, made on the device itself: speed and parity need no real ones."""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from quail_frames.cost.shapes import shape as published_shape
from quail_frames.kernels import dequantize_weight
from quail_frames.kernels.quantize import GROUP
from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.load import ModelFiles
from quail_frames.runtime.models.weights import BlockScaled
from quail_frames.runtime.tokens.oracle_tokenizer import OracleTokenizer


def qwen3_config(size: str, layers: int | None = None) -> ModelConfig:
    """The config of `Qwen3-<size>`, or of its first layers."""
    known = published_shape(f"qwen3-{size}")
    return ModelConfig(
        architecture="qwen3",
        vocab_size=known.vocabulary,
        hidden_size=known.hidden,
        intermediate_size=known.mlp,
        num_layers=layers or known.layers,
        num_heads=known.heads,
        num_kv_heads=known.kv_heads,
        head_dim=known.head_dim,
        rms_norm_eps=1e-6,
        rope_theta=1e6,
        max_position_embeddings=40_960,
        tie_word_embeddings=known.tied,
        qk_norm=True,
    )


def tiny_config(layers: int = 2) -> ModelConfig:
    """A Qwen3 small enough for a CPU, with a partial block of 128."""
    sizes = {"vocab_size": 512, "hidden_size": 160, "intermediate_size": 256, "num_heads": 4, "num_kv_heads": 2}
    return replace(qwen3_config("0.6b", layers), **sizes, head_dim=64, max_position_embeddings=4096)


@dataclass(frozen=True)
class RandomWeights:
    """A `WeightSource` of normal numbers: FP8 projections with block scales, all else plain; norms about one.

    The same for the same names, on every run of one device.
    """

    config: ModelConfig
    device: torch.device

    def names(self) -> frozenset[str]:
        return frozenset(self._shapes())

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shapes()[name]

    def read(self, name: str) -> Tensor:
        kept = self.scaled(name)
        if kept is not None:
            return dequantize_weight(kept.values, kept.scales)
        values = torch.randn(self.shape(name), generator=self._generator(name), device=self.device)
        return 1 + 0.1 * values if values.ndim == 1 else 0.02 * values

    def scaled(self, name: str) -> BlockScaled | None:
        if "_proj" not in name:
            return None
        rows, columns = self.shape(name)
        blocks = (-(-rows // GROUP), -(-columns // GROUP))
        generator = self._generator(name)
        values = torch.randn(rows, columns, generator=generator, device=self.device).to(torch.float8_e4m3fn)
        spread = torch.rand(blocks, generator=generator, device=self.device) + 0.5
        return BlockScaled(values, spread / columns**0.5)

    def place(self, name: str) -> str:
        return f"{name!r} of random weights"

    def sample(self, name: str) -> bytes:
        return name.encode()

    def _generator(self, name: str) -> torch.Generator:
        return torch.Generator(self.device).manual_seed(zlib.crc32(name.encode()))

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        c = self.config
        queries, keys = c.num_heads * c.head_dim, c.num_kv_heads * c.head_dim
        shapes: dict[str, tuple[int, ...]] = {
            "model.embed_tokens.weight": (c.vocab_size, c.hidden_size),
            "model.norm.weight": (c.hidden_size,),
        }
        if not c.tie_word_embeddings:
            shapes["lm_head.weight"] = (c.vocab_size, c.hidden_size)
        layer = {
            "input_layernorm": (c.hidden_size,),
            "post_attention_layernorm": (c.hidden_size,),
            "self_attn.q_norm": (c.head_dim,),
            "self_attn.k_norm": (c.head_dim,),
            "self_attn.q_proj": (queries, c.hidden_size),
            "self_attn.k_proj": (keys, c.hidden_size),
            "self_attn.v_proj": (keys, c.hidden_size),
            "self_attn.o_proj": (c.hidden_size, queries),
            "mlp.gate_proj": (c.intermediate_size, c.hidden_size),
            "mlp.up_proj": (c.intermediate_size, c.hidden_size),
            "mlp.down_proj": (c.hidden_size, c.intermediate_size),
        }
        for number in range(c.num_layers):
            shapes |= {f"model.layers.{number}.{name}.weight": shape for name, shape in layer.items()}
        return shapes


class RandomFiles(ModelFiles):
    """A model of random weights over a tokenizer of about a character a token."""

    def identity(self) -> str:
        return self.name


def random_files(config: ModelConfig, device: torch.device) -> ModelFiles:
    """Random weights of this shape, made on `device`."""
    name = f"random {config.architecture}, {config.num_layers} layers of {config.hidden_size}"
    return RandomFiles(name, RandomWeights(config, device), config, OracleTokenizer())
