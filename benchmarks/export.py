"""A model's weights as a Hugging Face folder, so that other engines run the same numbers."""

from __future__ import annotations

import json
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

from safetensors.torch import save_file

from quail_frames.errors import ModelError
from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.gguf import GgufWeights
from quail_frames.runtime.models.hub import cache_folder, resolve
from quail_frames.runtime.tokens.gguf_vocabulary import byte_level_bpe

CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}


def huggingface_folder(model: str, identity: str) -> Path:
    """A folder with config.json, tokenizer.json and safetensors; of a GGUF file one is written once, in float32.

    `identity` is the model's hash (`LoadedModel.identity`): it names the folder in the cache.
    """
    path = resolve(model)
    if path.is_dir():
        return path
    folder = cache_folder() / "benchmarks" / identity.split()[0]
    if not (folder / "config.json").exists():
        folder.mkdir(parents=True, exist_ok=True)
        weights = GgufWeights(path)
        tensors = {name: weights.read(name).float().contiguous() for name in weights.names()}
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        write_tokenizer(path, weights, folder)
        _write_whole(folder / "config.json", json.dumps(huggingface_config(weights.config()), indent=2))
    elif not (folder / "tokenizer.json").exists():
        write_tokenizer(path, GgufWeights(path), folder)
    return folder


def write_tokenizer(path: Path, weights: GgufWeights, folder: Path) -> None:
    """The tokenizer of a GGUF file, with its chat template, as transformers and vLLM read it."""
    metadata = weights.file.metadata
    backend, adds_bos = byte_level_bpe(metadata, str(path))
    ids = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    named = {f"{name}_token": backend.id_to_token(int(number)) for name, number in ids.items() if number is not None}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": adds_bos, **named}
    settings |= {"chat_template": metadata.get("tokenizer.chat_template")}
    _write_whole(folder / "tokenizer_config.json", json.dumps(settings, indent=2))
    _write_whole(folder / "tokenizer.json", backend.to_str())


def huggingface_config(config: ModelConfig) -> dict[str, Any]:
    """The config.json that transformers and vLLM read as this model."""
    if config.rope_scaling is not None and config.rope_scaling.kind == "factors":
        raise ModelError(
            "RoPE factors of a GGUF file have no form in config.json; give the safetensors folder instead."
        )
    shape = asdict(config)
    scaling = shape["rope_scaling"]
    return {
        "architectures": [CLASSES[config.architecture]],
        "model_type": config.architecture,
        "hidden_act": "silu",
        "num_hidden_layers": config.num_layers,
        "num_attention_heads": config.num_heads,
        "num_key_value_heads": config.num_kv_heads,
        "rope_scaling": scaling and {"rope_type": scaling.pop("kind"), **scaling},
        "bos_token_id": config.bos_id,
        "eos_token_id": list(config.eos_ids) or None,
        "torch_dtype": "float32",
        **{name: shape[name] for name in _SAME_NAME},
    }


_SAME_NAME = (
    "vocab_size",
    "hidden_size",
    "intermediate_size",
    "head_dim",
    "rms_norm_eps",
    "rope_theta",
    "max_position_embeddings",
    "tie_word_embeddings",
    "attention_bias",
    "mlp_bias",
    "sliding_window",
)


def _write_whole(path: Path, text: str) -> None:
    """So that a reader, or a process that was stopped, never sees half of it."""
    partial = path.with_suffix(".partial")
    partial.write_text(text)
    os.replace(partial, path)
