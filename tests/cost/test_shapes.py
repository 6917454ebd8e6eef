"""Model shapes give the published parameter counts, bytes and FLOPs by formula."""

from __future__ import annotations

import pytest

from quail_frames.cost.shapes import SHAPES, ModelShape, from_config, shape
from quail_frames.errors import ModelError

PUBLISHED_PARAMETERS = {
    "qwen3-0.6b": 596_049_920,
    "qwen3-1.7b": 1_720_574_976,
    "qwen3-4b": 4_022_468_096,
    "qwen3-8b": 8_190_735_360,
    "qwen3-14b": 14_768_307_200,
    "qwen3-32b": 32_762_123_264,
    "llama-3.2-1b": 1_235_814_400,
    "llama-3.2-3b": 3_212_749_824,
    "llama-3.1-8b": 8_030_261_248,
    "llama-3.1-70b": 70_553_706_496,
    "smollm2-135m": 134_515_008,
    "smollm2-360m": 361_821_120,
    "smollm2-1.7b": 1_711_376_384,
    "gemma-3-270m": 268_098_176,
    "gemma-3-1b": 999_885_952,
}


@pytest.mark.parametrize(("name", "parameters"), PUBLISHED_PARAMETERS.items())
def test_parameters_follow_from_the_sizes(name: str, parameters: int) -> None:
    assert shape(name).parameters == parameters


def test_qwen3_4b_has_the_published_flops_and_bytes() -> None:
    model = shape("qwen3-4b-fp8")
    assert model.flops_per_token == pytest.approx(7.2e9, rel=0.01)
    assert model.flops_per_head_row == pytest.approx(0.78e9, rel=0.01)
    assert model.weight_bytes == pytest.approx(4.5e9, rel=0.02)
    assert model.kv_bytes_per_token == 147_456


def test_fp8_changes_projections_and_mlp_only() -> None:
    wide, narrow = shape("qwen3-4b"), shape("qwen3-4b-fp8")
    matrices = wide.projection_parameters + wide.mlp_parameters
    assert wide.weight_bytes - narrow.weight_bytes == pytest.approx(matrices, rel=1e-3)
    assert narrow.kv_bytes_per_token == wide.kv_bytes_per_token
    assert shape("qwen3-4b-fp32").kv_bytes_per_token == 2 * wide.kv_bytes_per_token


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("Qwen/Qwen3-4B", "qwen3-4b"),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", "smollm2-135m"),
        ("google/gemma-3-270m-it", "gemma-3-270m"),
        ("meta-llama/Llama-3.1-8B-Instruct", "llama-3.1-8b"),
    ],
)
def test_hugging_face_names_are_understood(name: str, short: str) -> None:
    assert shape(name) == SHAPES[short]


def test_an_unknown_name_is_refused_with_the_nearest() -> None:
    with pytest.raises(ModelError, match="did you mean qwen3-4b"):
        shape("qwen3-4bb")


QWEN3_4B = {
    "model_type": "qwen3",
    "num_hidden_layers": 36,
    "hidden_size": 2560,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "intermediate_size": 9728,
    "vocab_size": 151_936,
    "tie_word_embeddings": True,
    "sliding_window": None,
    "torch_dtype": "bfloat16",
}
SMOLLM2_135M = {
    "model_type": "llama",
    "num_hidden_layers": 30,
    "hidden_size": 576,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "intermediate_size": 1536,
    "vocab_size": 49_152,
    "tie_word_embeddings": True,
    "dtype": "bfloat16",
}
GEMMA_3_4B = {
    "model_type": "gemma3",
    "text_config": {
        "model_type": "gemma3_text",
        "hidden_size": 2560,
        "intermediate_size": 10_240,
        "num_hidden_layers": 34,
        "sliding_window": 1024,
    },
    "torch_dtype": "bfloat16",
}


@pytest.mark.parametrize(
    ("config", "name"), [(QWEN3_4B, "qwen3-4b"), (SMOLLM2_135M, "smollm2-135m"), (GEMMA_3_4B, "gemma-3-4b")]
)
def test_a_config_gives_the_known_shape(config: dict[str, object], name: str) -> None:
    assert from_config(config, name) == SHAPES[name]


def test_a_block_scaled_config_is_fp8() -> None:
    config = {**QWEN3_4B, "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
    assert from_config(config, "qwen3-4b-fp8") == shape("qwen3-4b-fp8")


def test_configs_without_sizes_or_with_experts_are_refused() -> None:
    with pytest.raises(ModelError, match="hidden_size"):
        from_config({"num_hidden_layers": 2})
    with pytest.raises(ModelError, match="mixtures of experts"):
        from_config({**QWEN3_4B, "num_experts": 128})


def test_sliding_windows_are_counted_layer_by_layer() -> None:
    model = SHAPES["gemma-3-1b"]
    assert (model.window, model.windowed_layers) == (512, 22)
    assert isinstance(model, ModelShape) and model.reach.share == pytest.approx(22 / 26)
