"""The shape of a decoder, read from a Hugging Face config.json.

`ModelConfig` is all that the decoder, the loaders and the cost model need to know. What
would change the numbers and is not defined here is refused, never ignored.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from quail_frames.errors import ModelError
from quail_frames.kernels.quantize import GROUP
from quail_frames.runtime.models.variants import GEMMA_THETA, gemma3_fields, smollm3_fields

Architecture = Literal["llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma3_text"]
ARCHITECTURES: tuple[Architecture, ...] = ("llama", "mistral", "qwen2", "qwen3", "smollm3", "gemma3_text")
SIZES = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "num_layers",
    "num_heads",
    "num_kv_heads",
    "head_dim",
    "max_position_embeddings",
)


@dataclass(frozen=True)
class RopeScaling:
    """How RoPE frequencies differ from `theta ** (-2 i / head_dim)`.

    `linear` divides all of them by `factor`; `llama3` divides the low ones and blends the
    middle ones (Llama 3.1); `factors` divides frequency i by `factors[i]`, which is how
    GGUF stores the llama3 kind.
    """

    kind: Literal["linear", "llama3", "factors"]
    factor: float = 1.0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    original_max_position_embeddings: int = 8192
    factors: tuple[float, ...] = ()


@dataclass(frozen=True)
class ModelConfig:
    """Shape and constants of a decoder; JSON-ready through `dataclasses.asdict`."""

    architecture: Architecture
    vocab_size: int
    """Rows of the embedding matrix; may exceed the tokenizer's vocabulary (padding)."""
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rms_norm_eps: float
    rope_theta: float
    max_position_embeddings: int
    rope_scaling: RopeScaling | None = None
    tie_word_embeddings: bool = False
    attention_bias: bool = False
    """Biases on the q, k and v projections."""
    output_bias: bool = False
    """Bias on the attention's output projection."""
    mlp_bias: bool = False
    qk_norm: bool = False
    sliding_window: int | None = None
    """Window of the layers that have one, in tokens; it caps `context_length` where `sliding_layers` names none."""
    sliding_layers: tuple[bool, ...] = ()
    """Which layers see only `sliding_window` tokens back; empty: none, for prompts stay inside the window."""
    local_rope_theta: float | None = None
    """RoPE base of the sliding layers where it is their own; they have no RoPE scaling then."""
    rotated_layers: tuple[bool, ...] = ()
    """Which layers have RoPE; empty: all."""
    activation: Literal["silu", "gelu_tanh"] = "silu"
    norm_offset: float = 0.0
    """Norms multiply by this plus their weights."""
    post_norms: bool = False
    """The outputs of attention and MLP are normed before they join the residual."""
    embedding_scale: float = 1.0
    query_scale: float = 1.0
    """What scores are multiplied by beyond `head_dim ** -0.5`."""
    bos_id: int | None = None
    eos_ids: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in SIZES:
            if getattr(self, name) < 1:
                raise ModelError(f"The {self.architecture} model has {name}={getattr(self, name)}, which is no size.")
        if self.num_heads % self.num_kv_heads or self.head_dim % 2:
            raise ModelError(
                f"The {self.architecture} model has {self.num_heads} heads, {self.num_kv_heads} KV heads and a head "
                f"size of {self.head_dim}: the heads must be a multiple of the KV heads, and the head size even."
            )

    @property
    def context_length(self) -> int:
        """The longest prompt in tokens.

        Attention with a sliding window equals full attention as long as the prompt fits
        the window, so where all layers have it, it is honoured by keeping prompts inside it.
        """
        capped = self.sliding_window is not None and not self.sliding_layers
        return min(self.max_position_embeddings, self.sliding_window or 0) if capped else self.max_position_embeddings

    @property
    def windows(self) -> tuple[int | None, ...]:
        """Tokens that each layer sees back, itself included; None: all."""
        sliding = self.sliding_layers or (False,) * self.num_layers
        return tuple(self.sliding_window if slides else None for slides in sliding)


def config_from_huggingface(data: Mapping[str, Any], where: str) -> ModelConfig:
    """The config that a parsed config.json describes.

    Parameters
    ----------
    data
        The parsed file.
    where
        Its path, for messages.

    Raises
    ------
    ModelError
        The architecture, an activation, a RoPE scaling or a quantisation is not supported, or a field is missing.
    """
    architecture = _architecture(data, where)
    _refuse_unknown_parts(data, where)
    heads = _required(data, "num_attention_heads", where)
    hidden = _required(data, "hidden_size", where)
    gemma = architecture == "gemma3_text"
    rope = _rope_parameters(data)
    bias = bool(data.get("attention_bias", False)) if architecture != "mistral" else False
    layers = _required(data, "num_hidden_layers", where)
    fields: dict[str, Any] = {
        "architecture": architecture,
        "vocab_size": _required(data, "vocab_size", where),
        "hidden_size": hidden,
        "intermediate_size": _required(data, "intermediate_size", where),
        "num_layers": layers,
        "num_heads": heads,
        "num_kv_heads": data.get("num_key_value_heads") or heads,
        "head_dim": data.get("head_dim") or (256 if gemma else hidden // heads),
        "rms_norm_eps": float(data.get("rms_norm_eps", 1e-6)),
        "rope_theta": float(rope.get("rope_theta", GEMMA_THETA if gemma else 10_000.0)),
        "rope_scaling": _rope_scaling(rope, where),
        "max_position_embeddings": _required(data, "max_position_embeddings", where),
        "tie_word_embeddings": bool(data.get("tie_word_embeddings", False)),
        "attention_bias": bias or architecture == "qwen2",
        "output_bias": bias and architecture != "qwen2",
        "mlp_bias": architecture in ("llama", "smollm3") and bool(data.get("mlp_bias", False)),
        "qk_norm": architecture == "qwen3",
        "sliding_window": _sliding_window(data, architecture),
        "bos_id": _first_id(data.get("bos_token_id")),
        "eos_ids": _ids(data.get("eos_token_id")),
    }
    own = {"gemma3_text": gemma3_fields, "smollm3": smollm3_fields}.get(architecture)
    return ModelConfig(**(fields if own is None else {**fields, **own(data, where)}))


def _architecture(data: Mapping[str, Any], where: str) -> Architecture:
    model_type = data.get("model_type")
    for architecture in ARCHITECTURES:
        if architecture == model_type:
            return architecture
    raise ModelError(
        f"{where} describes a model of type {model_type!r}; the native runtime defines {', '.join(ARCHITECTURES)}. "
        "Choose such a model, or a backend that serves yours."
    )


def _refuse_unknown_parts(data: Mapping[str, Any], where: str) -> None:
    gemma = data.get("model_type") == "gemma3_text"
    defined = "gelu_pytorch_tanh" if gemma else "silu"
    activation = data.get("hidden_activation" if gemma else "hidden_act") or defined
    if activation != defined:
        raise ModelError(f"{where} asks for the activation {activation!r}; only {defined!r} is defined.")
    quantized = data.get("quantization_config")
    if quantized is not None and not _is_block_scaled(quantized):
        raise ModelError(
            f"{where} describes weights quantised with {quantized.get('quant_method')!r} in a form that this loader "
            "does not read; FP8 (e4m3) in blocks of 128 x 128 with dynamic activations is. "
            "Use such weights, bf16 or fp32 ones, or a GGUF file."
        )


def _is_block_scaled(quantized: Mapping[str, Any]) -> bool:
    """FP8 as Qwen3 and DeepSeek-V3 are published: e4m3, blocks of 128 x 128, activations scaled as they come."""
    return (
        quantized.get("quant_method") == "fp8"
        and quantized.get("fmt", "e4m3") == "e4m3"
        and list(quantized.get("weight_block_size") or ()) == [GROUP, GROUP]
        and quantized.get("activation_scheme", "dynamic") == "dynamic"
    )


def _rope_parameters(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """RoPE's fields in one mapping: transformers 5 nests them, older files spread them over two places."""
    spread = {key: data[key] for key in ("rope_theta", "partial_rotary_factor") if data.get(key) is not None}
    stated = data.get("rope_parameters") or {}
    stated = stated.get("full_attention", stated)  # by kind of layer where they differ
    return {**spread, **(data.get("rope_scaling") or {}), **stated}


def _rope_scaling(rope: Mapping[str, Any], where: str) -> RopeScaling | None:
    kind = rope.get("rope_type", rope.get("type", "default"))
    if rope.get("partial_rotary_factor", 1.0) != 1.0:
        raise ModelError(f"{where} rotates only a part of each head (partial_rotary_factor), which is not defined.")
    if kind == "default":
        return None
    if kind not in ("linear", "llama3"):
        raise ModelError(f"{where} asks for RoPE scaling {kind!r}; defined are 'default', 'linear' and 'llama3'.")
    try:
        return _known_scaling(kind, rope)
    except KeyError as error:
        raise ModelError(f"{where} asks for RoPE scaling {kind!r} and lacks its field {error}.") from None


def _known_scaling(kind: Literal["linear", "llama3"], rope: Mapping[str, Any]) -> RopeScaling:
    if kind == "linear":
        return RopeScaling("linear", factor=float(rope["factor"]))
    return RopeScaling(
        "llama3",
        factor=float(rope["factor"]),
        low_freq_factor=float(rope["low_freq_factor"]),
        high_freq_factor=float(rope["high_freq_factor"]),
        original_max_position_embeddings=int(rope["original_max_position_embeddings"]),
    )


def _sliding_window(data: Mapping[str, Any], architecture: Architecture) -> int | None:
    if architecture in ("gemma3_text", "smollm3"):
        return None  # see `variants`
    used = architecture == "mistral" or bool(data.get("use_sliding_window", False))
    return data.get("sliding_window") if used else None


def _required(data: Mapping[str, Any], key: str, where: str) -> int:
    if data.get(key) is None:
        raise ModelError(f"{where} lacks the field {key!r}; it is not the config of a decoder that can be run.")
    return int(data[key])


def _ids(value: int | list[int] | None) -> tuple[int, ...]:
    return () if value is None else tuple(value) if isinstance(value, list) else (value,)


def _first_id(value: int | list[int] | None) -> int | None:
    return next(iter(_ids(value)), None)
