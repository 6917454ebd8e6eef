"""Model shapes: the sizes of a decoder, from which parameters, bytes and FLOPs follow by formula.

A shape is data; nothing here loads a model. Sizes are those of the published `config.json` files.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from quail_frames.cost.work import Reach
from quail_frames.errors import ModelError

Dtype = Literal["fp32", "bf16", "fp16", "fp8", "int8"]
DTYPE_BYTES: dict[Dtype, int] = {"fp32": 4, "bf16": 2, "fp16": 2, "fp8": 1, "int8": 1}
QUANTISED: tuple[Dtype, ...] = ("fp8", "int8")
SCALE_BLOCK = 128 * 128
"""Weights that share one fp32 scale in block-scaled checkpoints."""


@dataclass(frozen=True)
class ModelShape:
    """A decoder with grouped-query attention and a gated MLP.

    `matrix_dtype` is that of projections and MLP; `dtype` that of all the rest: embeddings, head, KV, attention.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    mlp: int
    vocabulary: int
    tied: bool = True
    """The head uses the embedding matrix."""
    qk_norm: bool = False
    qkv_bias: bool = False
    norms: int = 2
    """RMSNorms over the hidden size in each layer."""
    window: int | None = None
    """Tokens seen by a layer with a sliding window."""
    windowed_layers: int = 0
    dtype: Dtype = "bf16"
    matrix_dtype: Dtype = "bf16"

    @property
    def projection_parameters(self) -> int:
        """Query, key, value and output matrices: `layers * hidden * head_dim * (2 heads + 2 kv_heads)`."""
        return self.layers * self.hidden * self.head_dim * 2 * (self.heads + self.kv_heads)

    @property
    def mlp_parameters(self) -> int:
        """Gate, up and down matrices of all layers: `layers * 3 * hidden * mlp`."""
        return self.layers * 3 * self.hidden * self.mlp

    @property
    def head_parameters(self) -> int:
        """The output head: `vocabulary * hidden`."""
        return self.vocabulary * self.hidden

    @property
    def small_parameters(self) -> int:
        """Norms and biases."""
        layer = self.norms * self.hidden
        layer += 2 * self.head_dim if self.qk_norm else 0
        layer += (self.heads + 2 * self.kv_heads) * self.head_dim if self.qkv_bias else 0
        return self.layers * layer + self.hidden

    @property
    def parameters(self) -> int:
        """All parameters; a tied head counts once."""
        matrices = self.projection_parameters + self.mlp_parameters
        return matrices + self.small_parameters + self.head_parameters * (1 if self.tied else 2)

    @property
    def matrix_bytes_per_parameter(self) -> float:
        """Bytes of a projection or MLP weight, its share of the block's fp32 scale included."""
        scale = 4 / SCALE_BLOCK if self.matrix_dtype in QUANTISED else 0.0
        return DTYPE_BYTES[self.matrix_dtype] + scale

    @property
    def weight_bytes(self) -> float:
        """Bytes of all weights in memory."""
        matrices = self.projection_parameters + self.mlp_parameters
        rest = self.parameters - matrices
        return matrices * self.matrix_bytes_per_parameter + rest * DTYPE_BYTES[self.dtype]

    @property
    def kv_bytes_per_token(self) -> int:
        """Keys and values of one token in all layers: `2 * layers * kv_heads * head_dim * bytes`."""
        return 2 * self.layers * self.kv_heads * self.head_dim * DTYPE_BYTES[self.dtype]

    @property
    def flops_per_token(self) -> int:
        """Projections and MLP: two for each parameter."""
        return 2 * (self.projection_parameters + self.mlp_parameters)

    @property
    def flops_per_pair(self) -> int:
        """`QK^T` and `PV` of one (query, key) pair in all heads and layers: `4 * layers * heads * head_dim`."""
        return 4 * self.layers * self.heads * self.head_dim

    @property
    def flops_per_head_row(self) -> int:
        """One row of the output head over the whole vocabulary: `2 * hidden * vocabulary`."""
        return 2 * self.head_parameters

    @property
    def reach(self) -> Reach:
        """How far back the layers see."""
        return Reach(self.window, self.windowed_layers / self.layers) if self.window else Reach()

    def in_dtype(self, dtype: Dtype) -> ModelShape:
        """The same model in another type: fp8 and int8 change projections and MLP, the others everything."""
        if dtype in QUANTISED:
            return replace(self, matrix_dtype=dtype)
        return replace(self, dtype=dtype, matrix_dtype=dtype)


def _qwen3(size: str, layers: int, hidden: int, heads: int, mlp: int, tied: bool) -> ModelShape:
    return ModelShape(f"qwen3-{size}", layers, hidden, heads, 8, 128, mlp, 151_936, tied, qk_norm=True)


def _llama(size: str, layers: int, hidden: int, heads: int, head_dim: int, mlp: int, tied: bool) -> ModelShape:
    return ModelShape(f"llama-{size}", layers, hidden, heads, 8, head_dim, mlp, 128_256, tied)


def _smollm2(size: str, layers: int, hidden: int, heads: int, kv_heads: int, mlp: int) -> ModelShape:
    return ModelShape(f"smollm2-{size}", layers, hidden, heads, kv_heads, 64, mlp, 49_152)


def _gemma3(
    size: str,
    layers: int,
    hidden: int,
    heads: int,
    kv_heads: int,
    mlp: int,
    vocabulary: int,
    window: int,
    head_dim: int = 256,
) -> ModelShape:
    local = layers - layers // 6
    return ModelShape(
        f"gemma-3-{size}", layers, hidden, heads, kv_heads, head_dim, mlp, vocabulary, qk_norm=True, norms=4,
        window=window, windowed_layers=local,
    )  # fmt: skip


SHAPES: dict[str, ModelShape] = {
    shape.name: shape
    for shape in (
        _qwen3("0.6b", 28, 1024, 16, 3072, tied=True),
        _qwen3("1.7b", 28, 2048, 16, 6144, tied=True),
        _qwen3("4b", 36, 2560, 32, 9728, tied=True),
        _qwen3("8b", 36, 4096, 32, 12_288, tied=False),
        _qwen3("14b", 40, 5120, 40, 17_408, tied=False),
        _qwen3("32b", 64, 5120, 64, 25_600, tied=False),
        _llama("3.2-1b", 16, 2048, 32, 64, 8192, tied=True),
        _llama("3.2-3b", 28, 3072, 24, 128, 8192, tied=True),
        _llama("3.1-8b", 32, 4096, 32, 128, 14_336, tied=False),
        _llama("3.1-70b", 80, 8192, 64, 128, 28_672, tied=False),
        _smollm2("135m", 30, 576, 9, 3, 1536),
        _smollm2("360m", 32, 960, 15, 5, 2560),
        _smollm2("1.7b", 24, 2048, 32, 32, 8192),
        _gemma3("270m", 18, 640, 4, 1, 2048, 262_144, 512),
        _gemma3("1b", 26, 1152, 4, 1, 6912, 262_144, 512),
        _gemma3("4b", 34, 2560, 8, 4, 10_240, 262_208, 1024),
        _gemma3("12b", 48, 3840, 16, 8, 15_360, 262_208, 1024),
        _gemma3("27b", 62, 5376, 32, 16, 21_504, 262_208, 1024, head_dim=128),
    )
}
"""Known models in bf16; `shape(name)` also knows their `-fp8`, `-int8`, `-fp16` and `-fp32` forms."""


def shape(name: str) -> ModelShape:
    """The shape of a known model, by its short name or its Hugging Face name.

    >>> shape("Qwen/Qwen3-4B-FP8") == shape("qwen3-4b-fp8")
    True

    Raises
    ------
    ModelError
        The name is not known; pass the model's `config.json` to `from_config` instead.
    """
    key = name.lower().rsplit("/", 1)[-1]
    dtype = next((dtype for dtype in DTYPE_BYTES if key.endswith(f"-{dtype}")), None)
    base = key.removesuffix(f"-{dtype}").removesuffix("-instruct").removesuffix("-it")
    base = base.removesuffix("-decide")  # an adapter is merged into its base, and changes no size
    if base not in SHAPES:
        near = difflib.get_close_matches(base, SHAPES, n=3)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(SHAPES)}"
        raise ModelError(f"no shape is known for model {name!r}; {hint} (or read its config.json with from_config)")
    found = SHAPES[base] if dtype is None else SHAPES[base].in_dtype(dtype)
    return replace(found, name=base if dtype is None else f"{base}-{dtype}")


def known_shape(name: str) -> ModelShape | None:
    """The shape of a known model, as `shape` gives it; None for a name that is not known.

    >>> known_shape("my-finetune") is None
    True
    """
    try:
        return shape(name)
    except ModelError:
        return None


_GEMMA3_TEXT = {"num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "vocab_size": 262_208}
"""Sizes that published Gemma 3 configs leave to the architecture's defaults."""
_NEEDED = ("num_hidden_layers", "hidden_size", "num_attention_heads", "intermediate_size", "vocab_size")
_TORCH_DTYPES: dict[str, Dtype] = {"float32": "fp32", "bfloat16": "bf16", "float16": "fp16"}


def from_config(config: Mapping[str, Any], name: str = "model") -> ModelShape:
    """The shape of a model from its `config.json` (Hugging Face form, as a mapping).

    Raises
    ------
    ModelError
        A size is missing, or the model is a mixture of experts.
    """
    text = dict(config.get("text_config", config))
    kind = str(text.get("model_type", ""))
    if kind.startswith("gemma3"):
        text = {**_GEMMA3_TEXT, **text}
    missing = [key for key in _NEEDED if key not in text]
    if missing:
        raise ModelError(
            f"config of {name}: {', '.join(missing)} missing; the cost model needs a dense decoder's sizes"
        )
    if text.get("num_experts") or text.get("num_local_experts"):
        raise ModelError(f"config of {name}: mixtures of experts have no cost model; use a dense model")
    heads, dtype = text["num_attention_heads"], _dtype(text)
    method = config.get("quantization_config", {}).get("quant_method")
    return ModelShape(
        name=name,
        layers=text["num_hidden_layers"],
        hidden=text["hidden_size"],
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=text.get("head_dim") or text["hidden_size"] // heads,
        mlp=text["intermediate_size"],
        vocabulary=text["vocab_size"],
        tied=config.get("tie_word_embeddings", text.get("tie_word_embeddings", kind.startswith("gemma"))),
        qk_norm=kind.startswith(("qwen3", "gemma3")),
        qkv_bias=text.get("attention_bias", kind == "qwen2"),
        norms=4 if kind.startswith(("gemma2", "gemma3")) else 2,
        window=text.get("sliding_window") if _windowed_layers(text) else None,
        windowed_layers=_windowed_layers(text),
        dtype=dtype,
        matrix_dtype="fp8" if method == "fp8" else dtype,
    )


def _dtype(text: Mapping[str, Any]) -> Dtype:
    stated = str(text.get("torch_dtype") or text.get("dtype") or "bfloat16").removeprefix("torch.")
    return _TORCH_DTYPES.get(stated, "bf16")


def _windowed_layers(text: Mapping[str, Any]) -> int:
    """Layers with a sliding window; zero where the config names a window but does not use it."""
    layers = int(text["num_hidden_layers"])
    if not text.get("sliding_window") or text.get("use_sliding_window") is False:
        return 0
    if "layer_types" in text:
        return sum(kind == "sliding_attention" for kind in text["layer_types"])
    if str(text.get("model_type", "")).startswith("gemma3"):
        return layers - layers // int(text.get("sliding_window_pattern", 6))
    return layers
