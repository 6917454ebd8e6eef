"""Putting a decoder's weights together from whatever file they lie in.

A `WeightSource` reads one named tensor at a time; `assemble` copies each into its place in
the fused matrices, so that memory holds the finished weights plus one tensor.
Tensors go by their Hugging Face names.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

import torch
from torch import Tensor

from quail_frames.errors import ModelError
from quail_frames.kernels.quantize import GROUP
from quail_frames.runtime.models.adapter_file import DECISION_HEAD
from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.products import packed
from quail_frames.runtime.options import Library


@dataclass(frozen=True, eq=False)
class BlockScaled:
    """A matrix (outputs, inputs) kept as published: e4m3 `values` times the float32 `scales` of their blocks.

    A block is 128 x 128; `scales` is (ceil(outputs / 128), ceil(inputs / 128)).
    """

    values: Tensor
    scales: Tensor


Matrix = Tensor | BlockScaled
M = TypeVar("M", Tensor, Matrix)


class WeightSource(Protocol):
    """Named tensors in a file or in several."""

    def names(self) -> frozenset[str]:
        """Hugging Face names of the tensors; a tensor without one goes by its own name."""

    def shape(self, name: str) -> tuple[int, ...]:
        """Shape of a tensor that is there."""

    def read(self, name: str) -> Tensor:
        """The tensor on the CPU, in a floating dtype."""

    def scaled(self, name: str) -> BlockScaled | None:
        """The tensor as FP8 with its scales, where it is stored so."""

    def place(self, name: str) -> str:
        """The tensor's own name and its file, for messages; also for a tensor that is missing."""

    def sample(self, name: str) -> bytes:
        """Some of the tensor's stored bytes and its stored type; for the model's identity."""


@dataclass(frozen=True)
class LayerWeights(Generic[M]):
    """One layer. Matrices are (outputs, inputs); how they lie in memory is `projection`'s choice."""

    attention_norm: Tensor
    qkv: M
    qkv_bias: Tensor | None
    qk_norm: Tensor | None
    """Norm weights of every q head, then every k head: (heads + KV heads, head_dim)."""
    output: M
    output_bias: Tensor | None
    attended_norm: Tensor | None
    """Norm of the attention's output before it joins the residual (Gemma)."""
    mlp_norm: Tensor
    gate_up: M
    gate_up_bias: Tensor | None
    down: M
    down_bias: Tensor | None
    down_norm: Tensor | None
    """Norm of the MLP's output before it joins the residual (Gemma)."""


@dataclass(frozen=True)
class DecoderWeights(Generic[M]):
    """A whole decoder; `head` is `embedding` itself where the two are tied."""

    embedding: Tensor
    layers: tuple[LayerWeights[M], ...]
    norm: Tensor
    head: Tensor


Project = Callable[[Sequence[str], Sequence[int], int], M]
"""Reads a projection: names of its parts, their rows, and columns."""


def assemble(
    config: ModelConfig,
    source: WeightSource,
    device: torch.device,
    dtype: torch.dtype,
    library: Library = "torch",
) -> DecoderWeights[Tensor]:
    """All weights of the model on `device` in `dtype`, as `library` multiplies with them; FP8 ones are expanded.

    Raises
    ------
    ModelError
        A tensor is missing, has another shape than the config says, or is one that the decoder would not use.
    """
    reader = _Reader(source, device, dtype)

    def project(names: Sequence[str], rows: Sequence[int], columns: int) -> Tensor:
        return packed(reader.projection(names, rows, columns), library)

    return _assembled(config, reader, project)


def assemble_scaled(
    config: ModelConfig, source: WeightSource, device: torch.device, dtype: torch.dtype, keep: bool = True
) -> DecoderWeights[Matrix]:
    """As `assemble`, for the kernels: with `keep`, FP8 projections stay as they are stored."""
    reader = _Reader(source, device, dtype)
    project: Project[Matrix] = reader.scaled_projection if keep else reader.projection
    return _assembled(config, reader, project)


def _assembled(config: ModelConfig, reader: _Reader, project: Project[M]) -> DecoderWeights[M]:
    hidden, vocabulary = config.hidden_size, config.vocab_size
    embedding = reader.matrix(["model.embed_tokens.weight"], [vocabulary], hidden)
    layers = tuple(_layer(config, reader, f"model.layers.{number}.", project) for number in range(config.num_layers))
    norm = reader.norm("model.norm", hidden, config.norm_offset)
    head = embedding if config.tie_word_embeddings else reader.matrix(["lm_head.weight"], [vocabulary], hidden)
    reader.refuse_unused(config)
    return DecoderWeights(embedding, layers, norm, head)


def _layer(config: ModelConfig, reader: _Reader, prefix: str, project: Project[M]) -> LayerWeights[M]:
    attention, mlp = prefix + "self_attn.", prefix + "mlp."
    queries, keys = config.num_heads * config.head_dim, config.num_kv_heads * config.head_dim
    hidden, inner = config.hidden_size, config.intermediate_size
    qkv, qkv_rows = [f"{attention}{x}_proj" for x in "qkv"], [queries, keys, keys]
    gate_up, gate_up_rows = [f"{mlp}gate_proj", f"{mlp}up_proj"], [inner, inner]
    output, down = [f"{attention}o_proj"], [f"{mlp}down_proj"]

    def norm(name: str) -> Tensor:
        return reader.norm(f"{prefix}{name}_layernorm", hidden, config.norm_offset)

    return LayerWeights(
        attention_norm=norm("input"),
        qkv=project(_weights(qkv), qkv_rows, hidden),
        qkv_bias=reader.vector(_biases(qkv), qkv_rows) if config.attention_bias else None,
        qk_norm=_qk_norm(config, reader, attention) if config.qk_norm else None,
        output=project(_weights(output), [hidden], queries),
        output_bias=reader.vector(_biases(output), [hidden]) if config.output_bias else None,
        attended_norm=norm("post_attention") if config.post_norms else None,
        mlp_norm=norm("pre_feedforward" if config.post_norms else "post_attention"),
        gate_up=project(_weights(gate_up), gate_up_rows, hidden),
        gate_up_bias=reader.vector(_biases(gate_up), gate_up_rows) if config.mlp_bias else None,
        down=project(_weights(down), [hidden], inner),
        down_bias=reader.vector(_biases(down), [hidden]) if config.mlp_bias else None,
        down_norm=norm("post_feedforward") if config.post_norms else None,
    )


def _qk_norm(config: ModelConfig, reader: _Reader, attention: str) -> Tensor:
    norms = [reader.norm(f"{attention}{x}_norm", config.head_dim, config.norm_offset) for x in "qk"]
    norms[0] = norms[0] * config.query_scale  # RoPE only turns, so a scale of the queries may as well stand here
    repeats = torch.tensor([config.num_heads, config.num_kv_heads], device=norms[0].device)
    return torch.stack(norms).repeat_interleave(repeats, dim=0)


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
        """A matrix that tokens are multiplied with, laid out as `packed` wants it, which then copies nothing."""
        transposed = self._device.type == "cpu" and self._dtype == torch.float32
        return self._fused(names, [(count, columns) for count in rows], transposed)

    def scaled_projection(self, names: Sequence[str], rows: Sequence[int], columns: int) -> Matrix:
        """A projection in FP8 where all its parts are stored so and their blocks of 128 rows line up."""
        stored = [self._source.scaled(name) if name in self._names else None for name in names]
        parts = [part for part in stored if part is not None]
        if len(parts) < len(names) or any(count % GROUP for count in rows[:-1]):
            return self.projection(names, rows, columns)
        for name, count in zip(names, rows, strict=True):
            self._check(name, (count, columns))
        values, scales = ([getattr(part, side) for part in parts] for side in ("values", "scales"))
        return BlockScaled(torch.cat(values).to(self._device), torch.cat(scales).to(self._device, torch.float32))

    def norm(self, module: str, size: int, offset: float) -> Tensor:
        """Weights of a norm. With an offset they stay float32: near 1, bfloat16 would lose most of them."""
        if not offset:
            return self.vector([f"{module}.weight"], [size])
        return (self._checked(f"{module}.weight", (size,)).to(torch.float32) + offset).to(self._device)

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
        self._check(name, shape)
        return self._source.read(name)

    def _check(self, name: str, shape: tuple[int, ...]) -> None:
        if name not in self._names:
            raise ModelError(f"The tensor {self._source.place(name)} is missing. Fetch the model's files again.")
        found = self._source.shape(name)
        if found != shape:
            raise ModelError(
                f"The tensor {self._source.place(name)} has the shape {found}; the model's config needs {shape}."
            )
        self._used.add(name)

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
