"""A model as a Hugging Face folder, so that vLLM and transformers read the same numbers: of a GGUF file, of an adapter.

The calibration of an adapter goes into `decision.json`, where this package finds it again.
"""

from __future__ import annotations

import json
import os
import shutil
from dataclasses import asdict
from pathlib import Path
from typing import Any

from filelock import FileLock
from safetensors.torch import save_file

from quail_frames.errors import ModelError
from quail_frames.runtime.cache import cache_folder
from quail_frames.runtime.models.adapter import read_adapter
from quail_frames.runtime.models.adapter_file import DECISION_HEAD, adapter_path
from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.gguf import GgufWeights
from quail_frames.runtime.models.hub import resolve
from quail_frames.runtime.models.load import DECISION_OPTIONS, ModelFiles, open_files
from quail_frames.runtime.models.safetensors import read_json
from quail_frames.runtime.tokens.gguf_vocabulary import byte_level_bpe

CLASSES = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
}
TOKENIZER_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def huggingface_folder(model: str) -> Path:
    """A folder with config.json, tokenizer.json and safetensors: the model itself where it is one, else in the cache.

    There it is written once, in float32, under the model's identity, with an adapter's changes merged. A decision head
    is left out: other engines would not know it.

    Raises
    ------
    ModelError
        The model is not found or not readable, or has no form as such a folder.
    """
    adapter = adapter_path(model)
    path = resolve(model if adapter is None else read_adapter(adapter).base)
    if adapter is None and path.is_dir():
        return path
    files = open_files(model)
    folder = cache_folder() / "exported" / files.identity()
    folder.mkdir(parents=True, exist_ok=True)
    with FileLock(folder / ".lock"):
        if not (folder / "config.json").exists():  # written last
            _write_weights(files, folder / "model.safetensors")
            if files.options:
                _write_whole(folder / DECISION_OPTIONS, json.dumps(dict(files.options), indent=2))
            config = _copied_tokenizer(path, folder) if path.is_dir() else _gguf_tokenizer(path, folder, files.config)
            _write_whole(folder / "config.json", json.dumps(config, indent=2))
    return folder


def huggingface_config(config: ModelConfig) -> dict[str, Any]:
    """The config.json that transformers and vLLM read as this model."""
    if config.architecture not in CLASSES:
        raise ModelError(
            f"{config.architecture} models have no form as a folder here; defined are {', '.join(CLASSES)}."
        )
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


def _write_weights(files: ModelFiles, path: Path) -> None:
    names = (name for name in files.source.names() if not name.startswith(DECISION_HEAD))
    tensors = {name: files.source.read(name).float().contiguous() for name in names}
    partial = path.with_suffix(".partial")
    save_file(tensors, partial, metadata={"format": "pt"})
    os.replace(partial, path)


def _gguf_tokenizer(path: Path, folder: Path, config: ModelConfig) -> dict[str, Any]:
    """Write the tokenizer of a GGUF file, with its chat template; gives the model's config.json."""
    metadata = GgufWeights(path).file.metadata
    backend, adds_bos = byte_level_bpe(metadata, str(path))
    ids = {name: metadata.get(f"tokenizer.ggml.{name}_token_id") for name in ("bos", "eos")}
    named = {f"{name}_token": backend.id_to_token(int(number)) for name, number in ids.items() if number is not None}
    settings = {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": adds_bos, **named}
    settings |= {"chat_template": metadata.get("tokenizer.chat_template")}
    _write_whole(folder / "tokenizer_config.json", json.dumps(settings, indent=2))
    _write_whole(folder / "tokenizer.json", backend.to_str())
    return huggingface_config(config)


def _copied_tokenizer(source: Path, folder: Path) -> dict[str, Any]:
    """Copy the tokenizer of an adapter's base; gives its config.json, for weights that are floats now."""
    for name in TOKENIZER_FILES:
        if (source / name).exists():
            shutil.copyfile(source / name, folder / name)
    config = read_json(source / "config.json")
    for name in ("quantization_config", "dtype"):  # the second is what newer files call torch_dtype, and would win
        config.pop(name, None)
    return config | {"torch_dtype": "float32"}


def _write_whole(path: Path, text: str) -> None:
    """So that a reader, or a process that was stopped, never sees half of it."""
    partial = path.with_suffix(".partial")
    partial.write_text(text, encoding="utf-8")
    os.replace(partial, path)
