"""Putting a decoder's weights together from whatever file they lie in.

A `WeightSource` reads one named tensor at a time; `assemble` copies each into its place in
the fused matrices, so that memory holds the finished weights plus one tensor.
Tensors go by their Hugging Face names.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from quail_frames.errors import ModelError
from quail_frames.runtime.models.config import ModelConfig

DECISION_HEAD = "decision_head."
"""Start of the names of a decision head's tensors, which are no part of the decoder."""


class WeightSource(Protocol):
    """Named tensors in a file or in several."""

    def names(self) -> frozenset[str]:
        """Hugging Face names of the tensors; a tensor without one goes by its own name."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor that is there."""

    def read(self, name: str) -> Tensor:
        """The tensor on the CPU, in a floating dtype."""

    def place(self, name: str) -> str:
        """The tensor's own name and its file, for messages; also for a tensor that is missing."""

    def sample(self, name: str) -> bytes:
        """Some of the tensor's stored bytes and its stored type; for the model's identity."""


@dataclass(frozen=True)
class LayerWeights:
    """One layer. Matrices are (outputs, inputs); how they lie in memory is `projection`'s choice."""

    attention_norm: Tensor
    qkv: Tensor
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    """Norm weights of every q head, then every k head: (heads + KV heads, head_dim)."""
    output: Tensor
    output_bias: Tensor | None
    mlp_norm: Tensor
    gate_up: Tensor
    gate_up_bias: Tensor | None
    down: Tensor
    down_bias: Tensor | None


@dataclass(frozen=True)
class DecoderWeights:
    """A whole decoder; `head` is `embedding` itself where the two are tied."""

    embedding: Tensor
    layers: tuple[LayerWeights, ...]
    norm: Tensor
    head: Tensor


def assemble(config: ModelConfig, source: WeightSource, device: torch.device, dtype: torch.dtype) -> DecoderWeights:
    """All weights of the model on `device` in `dtype`.

    Raises
    ------
    ModelError
        A tensor is missing, has another shape than the config says, or is one that the decoder would not use.
    """
    reader = _Reader(source, device, dtype)
    hidden, vocabulary = config.hidden_size, config.vocab_size
    embedding = reader.matrix(["model.embed_tokens.weight"], [vocabulary], hidden)
    layers = tuple(_layer(config, reader, f"model.layers.{number}.") for number in range(config.num_layers))
    norm = reader.vector(["model.norm.weight"], [hidden])
    head = embedding if config.tie_word_embeddings else reader.matrix(["lm_head.weight"], [vocabulary], hidden)
    reader.refuse_unused(config)
    return DecoderWeights(embedding, layers, norm, head)


def _layer(config: ModelConfig, reader: _Reader, prefix: str) -> LayerWeights:
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    qkv, qkv_rows = [f"{attention}{x}_proj" for x in "qkv"], [queries, keys, keys]
    gate_up, gate_up_rows = [f"{mlp}gate_proj", f"{mlp}up_proj"], [inner, inner]
    output, down = [f"{attention}o_proj"], [f"{mlp}down_proj"]
    return LayerWeights(
        attention_norm=reader.vector([prefix + "input_layernorm.weight"], [hidden]),
        qkv=reader.projection(_weights(qkv), qkv_rows, hidden),
        qkv_bias=reader.vector(_biases(qkv), qkv_rows) if config.attention_bias else None,
        qk_norm=_qk_norm(config, reader, attention) if config.qk_norm else None,
        output=reader.projection(_weights(output), [hidden], queries),
        output_bias=reader.vector(_biases(output), [hidden]) if config.output_bias else None,
        mlp_norm=reader.vector([prefix + "post_attention_layernorm.weight"], [hidden]),
        gate_up=reader.projection(_weights(gate_up), gate_up_rows, hidden),
        gate_up_bias=reader.vector(_biases(gate_up), gate_up_rows) if config.mlp_bias else None,
        down=reader.projection(_weights(down), [hidden], inner),
        down_bias=reader.vector(_biases(down), [hidden]) if config.mlp_bias else None,
    )


def _qk_norm(config: ModelConfig, reader: _Reader, attention: str) -> Tensor:
    size = config.head_dim
    norms = reader.vector([attention + "q_norm.weight", attention + "k_norm.weight"], [size, size]).view(2, size)
    repeats = torch.tensor([config.num_heads, config.num_kv_heads], device=norms.device)
    return norms.repeat_interleave(repeats, dim=0)


def _weights(modules: Sequence[str]) -> list[str]:
    return [f"{module}.weight" for module in modules]


def _biases(modules: Sequence[str]) -> list[str]:
    return [f"{module}.bias" for module in modules]


class _Reader:
    """Copies tensors of a source into fused ones, checks shapes, remembers what was used."""

    def __init__(self, source: WeightSource, device: torch.device, dtype: torch.dtype) -> None:
        self._source, self._device, self._dtype = source, device, dtype
        self._names = source.names()
        self._used: set[str] = set()

    def matrix(self, names: Sequence[str], rows: Sequence[int], columns: int) -> Tensor:
        return self._fused(names, [(count, columns) for count in rows])

    def projection(self, names: Sequence[str], rows: Sequence[int], columns: int) -> Tensor:
        """A matrix that tokens are multiplied with.

        In float32 on a CPU its transpose is what lies contiguous: MKL then multiplies 1 to 5%
        faster (one core of an AVX2 machine, 256 to 2,048 tokens, the shapes of SmolLM2-135M).
        """
        transposed = self._device.type == "cpu" and self._dtype == torch.float32
        return self._fused(names, [(count, columns) for count in rows], transposed)

    def vector(self, names: Sequence[str], sizes: Sequence[int]) -> Tensor:
        return self._fused(names, [(size,) for size in sizes])

    def _fused(self, names: Sequence[str], shapes: Sequence[tuple[int, ...]], transposed: bool = False) -> Tensor:
        total = (sum(shape[0] for shape in shapes), *shapes[0][1:])
        fused = torch.empty(total[::-1] if transposed else total, dtype=self._dtype, device=self._device)
        fused = fused.t() if transposed else fused
        parts = fused.split([shape[0] for shape in shapes])
        for name, shape, part in zip(names, shapes, parts, strict=True):
            part.copy_(self._checked(name, shape))
        return fused

    def _checked(self, name: str, shape: tuple[int, ...]) -> Tensor:
        if name not in self._names:
            raise ModelError(f"The tensor {self._source.place(name)} is missing. Fetch the model's files again.")
        found = self._source.shape(name)
        if found != shape:
            raise ModelError(
                f"The tensor {self._source.place(name)} has the shape {found}; the model's config needs {shape}."
            )
        self._used.add(name)
        return self._source.read(name)

    def refuse_unused(self, config: ModelConfig) -> None:
        """A tensor left over means that the file's model computes something that this decoder does not."""
        tied = {"lm_head.weight"} if config.tie_word_embeddings else set()
        derived = {name for name in self._names if name.endswith("rotary_emb.inv_freq")}
        beside = {name for name in self._names if name.startswith(DECISION_HEAD)}
        unused = sorted(self._names - self._used - tied - derived - beside)
        if unused:
            raise ModelError(
                f"The tensor {self._source.place(unused[0])} (one of {len(unused)}) has no part in the decoder of "
                f"architecture {config.architecture!r} that the config describes; running without it would give "
                "wrong answers."
            )
