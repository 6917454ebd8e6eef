"""Tiny random models of every architecture, made by transformers, which is also the oracle."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM

SHAPE = {
    "vocab_size": 300,
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "rms_norm_eps": 1e-5,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class TinyModel:
    """A model saved in `folder`, and the same one in transformers."""

    folder: Path
    oracle: Any

    def logits(self, tokens: Tensor) -> Tensor:
        """Logits by transformers, shape (tokens, vocabulary)."""
        with torch.inference_mode():
            logits: Tensor = self.oracle(tokens[None]).logits[0]
        return logits


MakeTiny = Callable[..., TinyModel]


@pytest.fixture
def make_tiny(tmp_path: Path) -> MakeTiny:
    """`make_tiny("qwen2", shard="20KB", tie_word_embeddings=True, ...)` saves a random model and its tokenizer."""

    def make(architecture: str, shard: str = "5GB", **options: Any) -> TinyModel:
        torch.manual_seed(7)
        config = AutoConfig.for_model(architecture, **{**SHAPE, **options})
        oracle = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval().to(torch.float32)
        for parameter in oracle.parameters():  # the usual start leaves norms at one and biases at zero
            torch.nn.init.normal_(parameter, mean=0.2 if parameter.ndim == 1 else 0.0, std=0.2)
        folder = tmp_path / architecture
        oracle.save_pretrained(folder, max_shard_size=shard)
        byte_tokenizer().save(str(folder / "tokenizer.json"))
        return TinyModel(folder, oracle)

    return make


def byte_tokenizer() -> Tokenizer:
    """One token for each byte."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.fixture
def edit_json() -> Callable[..., None]:
    """`edit_json(path, key=value, ...)` changes fields of a JSON file."""

    def edit(path: Path, **changes: Any) -> None:
        path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))

    return edit
