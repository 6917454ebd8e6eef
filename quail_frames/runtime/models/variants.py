"""What single architectures do differently from the Llama decoder, as fields of `ModelConfig`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quail_frames.errors import ModelError

GEMMA_THETA, GEMMA_LOCAL_THETA = 1_000_000.0, 10_000.0
GEMMA_PATTERN = 6
"""Every sixth layer of Gemma 3 sees everything."""
SMOLLM3_PATTERN = 4
"""Every fourth layer of SmolLM3 has no RoPE."""


def gemma3_fields(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Gemma 3: sliding layers with a RoPE base of their own, norms before and after, scaled embeddings and queries."""
    for unknown in ("final_logit_softcapping", "attn_logit_softcapping", "use_bidirectional_attention"):
        if data.get(unknown):
            raise ModelError(f"{where} sets {unknown}, which is not defined for Gemma 3.")
    layers, head_dim = int(data["num_hidden_layers"]), int(data.get("head_dim") or 256)
    nested = (data.get("rope_parameters") or {}).get("sliding_attention", {})
    if nested.get("rope_type", "default") != "default":
        raise ModelError(f"{where} scales the RoPE of the sliding layers ({nested['rope_type']!r}); not defined.")
    return {
        **gemma3_shape(layers, int(data["hidden_size"]), int(data.get("sliding_window_pattern") or GEMMA_PATTERN)),
        **_sliding(data, where),
        "query_scale": (head_dim / float(data.get("query_pre_attn_scalar") or 256)) ** 0.5,
        "local_rope_theta": float(nested.get("rope_theta") or data.get("rope_local_base_freq") or GEMMA_LOCAL_THETA),
        "tie_word_embeddings": bool(data.get("tie_word_embeddings", True)),
    }


def gemma3_shape(layers: int, hidden: int, pattern: int = GEMMA_PATTERN) -> dict[str, Any]:
    """What is the same in every Gemma 3 of these sizes."""
    return {
        "qk_norm": True,
        "activation": "gelu_tanh",
        "norm_offset": 1.0,
        "post_norms": True,
        "embedding_scale": hidden**0.5,
        "sliding_layers": tuple((number + 1) % pattern != 0 for number in range(layers)),
    }


def smollm3_fields(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """SmolLM3: a Llama in which some layers have no RoPE."""
    layers, interval = int(data["num_hidden_layers"]), int(data.get("no_rope_layer_interval") or SMOLLM3_PATTERN)
    rotated = data.get("no_rope_layers") or [(number + 1) % interval != 0 for number in range(layers)]
    slides = bool(data.get("use_sliding_window", False)) and data.get("sliding_window") is not None
    found: dict[str, Any] = {"rotated_layers": tuple(bool(turned) for turned in rotated)}
    if slides:
        found |= {"sliding_layers": tuple(not turned for turned in found["rotated_layers"]), **_sliding(data, where)}
    return found


def _sliding(data: Mapping[str, Any], where: str) -> dict[str, Any]:
    """Window and, where the config lists them, the sliding layers."""
    window = data.get("sliding_window")
    if not window:
        raise ModelError(f"{where} has sliding layers and lacks 'sliding_window'.")
    kinds = data.get("layer_types")
    unknown = sorted(set(kinds or ()) - {"sliding_attention", "full_attention"})
    if unknown:
        raise ModelError(f"{where} has layers of type {unknown[0]!r}; defined are sliding and full attention.")
    listed = {"sliding_layers": tuple(kind == "sliding_attention" for kind in kinds)} if kinds else {}
    return {"sliding_window": int(window), **listed}
