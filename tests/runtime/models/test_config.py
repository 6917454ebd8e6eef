"""What a config.json says is understood or refused, never ignored."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Any

import pytest

from quail_frames.errors import ModelError
from quail_frames.runtime.models.config import ModelConfig, RopeScaling, config_from_huggingface

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "vocab_size": 100,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 1000,
    "rms_norm_eps": 1e-5,
    "rope_theta": 500_000.0,
}


def read(**changes: Any) -> ModelConfig:
    return config_from_huggingface({**LLAMA, **changes}, "folder/config.json")


def test_fields_that_may_be_left_out_have_the_familys_defaults() -> None:
    config = read(num_key_value_heads=None)
    assert (config.num_kv_heads, config.head_dim, config.rope_theta) == (4, 16, 500_000.0)
    assert not config.tie_word_embeddings and config.eos_ids == () and config.context_length == 1000


def test_rope_is_read_from_its_old_and_its_new_place() -> None:
    scaling = {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 512}
    old = read(rope_scaling={"rope_type": "llama3", **scaling})
    new = read(rope_theta=None, rope_parameters={"rope_type": "llama3", "rope_theta": 500_000.0, **scaling})
    assert old == new
    assert old.rope_scaling == RopeScaling("llama3", 8.0, 1.0, 4.0, 512)
    assert read(rope_scaling={"type": "linear", "factor": 2.0}).rope_scaling == RopeScaling("linear", 2.0)


def test_a_sliding_window_caps_the_context() -> None:
    assert read(model_type="mistral", sliding_window=256).context_length == 256
    assert read(model_type="mistral", sliding_window=None).context_length == 1000
    assert read(model_type="qwen2", sliding_window=256, use_sliding_window=False).context_length == 1000
    assert read(model_type="qwen2", sliding_window=256, use_sliding_window=True).context_length == 256


def test_biases_and_norms_follow_the_architecture() -> None:
    qwen2, qwen3, biased = read(model_type="qwen2"), read(model_type="qwen3"), read(attention_bias=True, mlp_bias=True)
    assert (qwen2.attention_bias, qwen2.output_bias, qwen2.qk_norm) == (True, False, False)
    assert (qwen3.attention_bias, qwen3.output_bias, qwen3.qk_norm) == (False, False, True)
    assert (biased.attention_bias, biased.output_bias, biased.mlp_bias) == (True, True, True)


def test_end_tokens_may_be_one_or_several() -> None:
    assert read(eos_token_id=2).eos_ids == (2,)
    assert read(eos_token_id=[2, 5]).eos_ids == (2, 5)


def test_a_config_is_json() -> None:
    assert json.loads(json.dumps(asdict(read())))["hidden_size"] == 64


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model_type": "gemma3"}, "'gemma3'.*llama, mistral, qwen2, qwen3, smollm3, gemma3_text"),
        ({"rope_scaling": {"type": "yarn", "factor": 4.0}}, "RoPE scaling 'yarn'"),
        ({"rope_scaling": {"type": "linear"}}, "RoPE scaling 'linear'.*'factor'"),
        ({"partial_rotary_factor": 0.5}, "partial_rotary_factor"),
        ({"hidden_act": "gelu"}, "activation 'gelu'"),
        ({"quantization_config": {"quant_method": "awq"}}, "'awq'"),
        ({"hidden_size": None}, "lacks the field 'hidden_size'"),
    ],
)
def test_what_is_not_defined_is_refused_and_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModelError, match=rf"folder/config\.json .*{message}"):
        read(**changes)


def test_heads_that_do_not_divide_are_refused() -> None:
    with pytest.raises(ModelError, match="4 heads, 3 KV heads"):
        read(num_key_value_heads=3)
