"""Models from a GGUF file: config, weights (dequantised tensor by tensor) and names as in Hugging Face folders."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType
from gguf.quants import dequantize
from torch import Tensor

from quail_frames.errors import ModelError
from quail_frames.runtime.models.config import Architecture, ModelConfig, RopeScaling
from quail_frames.runtime.models.gguf_file import GgufFile, open_gguf
from quail_frames.runtime.models.variants import GEMMA_LOCAL_THETA, GEMMA_PATTERN, gemma3_shape
from quail_frames.runtime.models.weights import BlockScaled

ARCHITECTURES: dict[str, Architecture] = {
    "llama": "llama",
    "qwen2": "qwen2",
    "qwen3": "qwen3",
    "gemma3": "gemma3_text",
}
"""GGUF names; the Mistral models of the Llama shape are stored as llama."""

_KINDS = ("F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K")
READABLE = frozenset(GGMLQuantizationType[name] for name in _KINDS)
"""Stored types that are dequantised."""
SAMPLE_BYTES = 512
ROPE_FACTORS = "rope_freqs.weight"
_WHOLE = {"token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head"}
_IN_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "attn_output": "self_attn.o_proj",
    "ffn_norm": "post_attention_layernorm",  # in Gemma pre_feedforward_layernorm
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_IN_GEMMA_LAYER = {
    **_IN_LAYER,
    "ffn_norm": "pre_feedforward_layernorm",
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
GEMMA_27B_LAYERS = 62
"""The one Gemma 3 whose queries are not scaled by their own size, but by hidden size / heads; GGUF does not say so."""


class GgufWeights:
    """A `WeightSource` over a GGUF file.

    Raises
    ------
    ModelError
        The file cannot be read, or holds another architecture.
    """

    def __init__(self, path: Path) -> None:
        self.file = open_gguf(path)
        self._config = config_from_gguf(self.file)
        gemma = self._config.architecture == "gemma3_text"
        self._stored = {huggingface_name(name, gemma): name for name in self.file.tensors if name != ROPE_FACTORS}

    def config(self) -> ModelConfig:
        """The model's shape, from the metadata."""
        return self._config

    def names(self) -> frozenset[str]:
        return frozenset(self._stored)

    def shape(self, name: str) -> tuple[int, ...]:
        return self.file.tensors[self._stored[name]].shape

    def read(self, name: str) -> Tensor:
        weight = _dequantized(self.file, self._stored[name])
        if self._config.norm_offset and name.endswith("norm.weight"):
            return weight - self._config.norm_offset  # GGUF stores the sum
        heads = self._interleaved_heads(name)
        return weight if heads is None else _halves_first(weight, heads)

    def scaled(self, name: str) -> BlockScaled | None:
        return None  # GGUF has no type with scales of 128 x 128 blocks

    def place(self, name: str) -> str:
        stored = self._stored.get(name)
        return f"{name!r} of {self.file.path}" if stored is None else f"{stored!r} ({name}) of {self.file.path}"

    def sample(self, name: str) -> bytes:
        stored = self.file.stored(self._stored[name]).reshape(-1)
        kind = self.file.tensors[self._stored[name]].kind
        return kind.name.encode() + stored[:SAMPLE_BYTES].tobytes() + stored[-SAMPLE_BYTES:].tobytes()

    def _interleaved_heads(self, name: str) -> int | None:
        """Number of heads of a q or k projection whose rows are stored as interleaved pairs; None for others."""
        if self._config.architecture != "llama":
            return None
        if "self_attn.q_proj." in name:
            return self._config.num_heads
        return self._config.num_kv_heads if "self_attn.k_proj." in name else None


def huggingface_name(stored: str, gemma: bool = False) -> str:
    """The Hugging Face name of a GGUF tensor; the stored name itself where there is none.

    >>> huggingface_name("blk.3.attn_q.weight")
    'model.layers.3.self_attn.q_proj.weight'
    """
    match = re.fullmatch(r"(?:blk\.(\d+)\.)?(\w+)\.(weight|bias)", stored)
    if match is None:
        return stored
    layer, module, kind = match.groups()
    in_layer = _IN_GEMMA_LAYER if gemma else _IN_LAYER
    named = _WHOLE.get(module) if layer is None else in_layer.get(module)
    if named is None:
        return stored
    return f"{named}.{kind}" if layer is None else f"model.layers.{layer}.{named}.{kind}"


def config_from_gguf(file: GgufFile) -> ModelConfig:
    """The config that a file's metadata and tensors describe.

    Raises
    ------
    ModelError
        The architecture or the RoPE scaling is not supported, or an entry is missing.
    """
    stored_architecture = file.metadata.get("general.architecture")
    architecture = ARCHITECTURES.get(str(stored_architecture))
    if architecture is None or file.metadata.get(f"{stored_architecture}.expert_count", 0):
        raise ModelError(
            f"{file.path} holds a model of architecture {stored_architecture!r}; the native runtime reads dense "
            f"models of {', '.join(ARCHITECTURES)} from GGUF. Choose such a model, or a backend that serves yours."
        )
    entries = _Entries(file, str(stored_architecture))
    heads, hidden = int(entries["attention.head_count"]), int(entries["embedding_length"])
    layers = int(entries["block_count"])
    fields: dict[str, Any] = {
        "architecture": architecture,
        "vocab_size": _rows_of_embedding(file),
        "hidden_size": hidden,
        "intermediate_size": int(entries["feed_forward_length"]),
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": int(entries.get("attention.head_count_kv", heads)),
        "head_dim": _head_dim(entries, hidden // heads),
        "rms_norm_eps": float(entries["attention.layer_norm_rms_epsilon"]),
        "rope_theta": float(entries.get("rope.freq_base", 10_000.0)),
        "max_position_embeddings": int(entries["context_length"]),
        "rope_scaling": _rope_scaling(file, entries),
        "tie_word_embeddings": "output.weight" not in file.tensors,
        "attention_bias": "blk.0.attn_q.bias" in file.tensors,
        "output_bias": "blk.0.attn_output.bias" in file.tensors,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensors,
        "qk_norm": "blk.0.attn_q_norm.weight" in file.tensors,
        "sliding_window": entries.get("attention.sliding_window", None),
        "bos_id": file.metadata.get("tokenizer.ggml.bos_token_id"),
        "eos_ids": tuple(x for x in [file.metadata.get("tokenizer.ggml.eos_token_id")] if x is not None),
    }
    if architecture == "gemma3_text":
        pattern = int(entries.get("attention.sliding_window_pattern", GEMMA_PATTERN))
        fields |= gemma3_shape(layers, hidden, pattern) | {"local_rope_theta": GEMMA_LOCAL_THETA}
        if layers == GEMMA_27B_LAYERS:
            fields["query_scale"] = (fields["head_dim"] * heads / hidden) ** 0.5
    return ModelConfig(**fields)


class _Entries:
    """Metadata of the file's architecture."""

    def __init__(self, file: GgufFile, architecture: str) -> None:
        self.path, self._prefix = file.path, architecture + "."
        self._metadata: Mapping[str, Any] = file.metadata

    def __getitem__(self, key: str) -> Any:
        if self._prefix + key not in self._metadata:
            raise ModelError(f"{self.path} lacks the metadata entry {self._prefix + key!r}. Fetch the file again.")
        return self._metadata[self._prefix + key]

    def get(self, key: str, default: Any) -> Any:
        return self._metadata.get(self._prefix + key, default)


def _rows_of_embedding(file: GgufFile) -> int:
    if "token_embd.weight" not in file.tensors:
        raise ModelError(f"The tensor 'token_embd.weight' is missing from {file.path}. Fetch the file again.")
    return file.tensors["token_embd.weight"].shape[0]


def _head_dim(entries: _Entries, default: int) -> int:
    size = int(entries.get("attention.key_length", default))
    values, rotated = entries.get("attention.value_length", size), entries.get("rope.dimension_count", size)
    if values != size or rotated != size:
        raise ModelError(
            f"{entries.path} has heads of {size} for keys, {values} for values, {rotated} of them rotated; "
            "the native runtime defines heads where the three are equal."
        )
    return size


def _rope_scaling(file: GgufFile, entries: _Entries) -> RopeScaling | None:
    kind = entries.get("rope.scaling.type", "none")
    if kind == "linear":
        return RopeScaling("linear", factor=float(entries["rope.scaling.factor"]))
    if kind != "none":
        raise ModelError(f"{entries.path} asks for RoPE scaling {kind!r}; defined are 'none' and 'linear'.")
    if ROPE_FACTORS not in file.tensors:
        return None
    return RopeScaling("factors", factors=tuple(_dequantized(file, ROPE_FACTORS).tolist()))


def _dequantized(file: GgufFile, name: str) -> Tensor:
    kind = file.tensors[name].kind
    if kind not in READABLE:
        raise ModelError(
            f"The tensor {name!r} of {file.path} is stored as {kind.name}; "
            f"{', '.join(_KINDS)} are read. Take a file quantised in one of these."
        )
    return torch.from_numpy(dequantize(file.stored(name), kind)).view(file.tensors[name].shape)


def _halves_first(weight: Tensor, heads: int) -> Tensor:
    """Rows of each head from GGUF's interleaved pairs (x0 y0 x1 y1 ...) to halves (x0 x1 ... y0 y1 ...)."""
    pairs = weight.view(heads, weight.shape[0] // heads // 2, 2, *weight.shape[1:])
    return pairs.transpose(1, 2).reshape(weight.shape)
