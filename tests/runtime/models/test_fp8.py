"""Published FP8 checkpoints: block-scaled weights are expanded where torch runs, and kept where the kernels do."""

from __future__ import annotations

import weakref
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from quail_frames.errors import ModelError
from quail_frames.kernels import dequantize_weight
from quail_frames.runtime.models.attention import causal_attention
from quail_frames.runtime.models.load import load_model
from quail_frames.runtime.models.safetensors import SafetensorsFolder
from quail_frames.runtime.models.weights import BlockScaled, Matrix, assemble, assemble_scaled
from tests.support.fp8 import convert_to_fp8

CPU = torch.device("cpu")
SHAPE = {"hidden_size": 160, "intermediate_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4,
         "num_key_value_heads": 2, "head_dim": 64, "max_position_embeddings": 512}  # fmt: skip


def expanded(matrix: Matrix) -> Tensor:
    return dequantize_weight(matrix.values, matrix.scales) if isinstance(matrix, BlockScaled) else matrix


@pytest.mark.parametrize("shard", ["5GB", "100KB"])
def test_the_model_equals_transformers_with_expanded_weights(make_tiny: Any, shard: str) -> None:
    tiny = make_tiny("qwen3", shard=shard, **SHAPE)
    state = convert_to_fp8(tiny.folder, kept=("layers.1.mlp.down_proj",))
    tiny.oracle.load_state_dict(state)
    decoder = load_model(tiny.folder, dtype="float32").decoder
    tokens = torch.randint(0, 300, (60,), generator=torch.Generator().manual_seed(1))
    found = decoder.logits(decoder.hidden(tokens, torch.arange(60), causal_attention()))
    assert (found - tiny.logits(tokens)).abs().max() <= 1e-4


def test_kept_weights_mean_the_same_numbers(make_tiny: Any) -> None:
    folder = make_tiny("qwen3", **{**SHAPE, "intermediate_size": 200}).folder
    convert_to_fp8(folder, kept=("layers.1.self_attn.o_proj",))
    source = SafetensorsFolder(folder)
    config = source.config()
    kept, wide = (build(config, source, CPU, torch.float32) for build in (assemble_scaled, assemble))
    scaled = []
    for ours, theirs in zip(kept.layers, wide.layers, strict=True):
        for name in ("qkv", "output", "gate_up", "down"):
            torch.testing.assert_close(expanded(getattr(ours, name)), getattr(theirs, name), rtol=0, atol=0)
        scaled.append([isinstance(getattr(ours, name), BlockScaled) for name in ("qkv", "output", "gate_up", "down")])
    # gate and up of 200 rows do not share blocks; the second layer's output projection was not converted.
    assert scaled == [[True, True, False, True], [True, False, False, True]]


def test_weights_are_read_one_at_a_time(make_tiny: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = make_tiny("qwen3", shard="100KB", **SHAPE).folder
    convert_to_fp8(folder)
    alive: list[weakref.ref[Tensor]] = []
    most = 0
    read = SafetensorsFolder.read

    def counted(self: SafetensorsFolder, name: str) -> Tensor:
        nonlocal most
        most = max(most, sum(found() is not None for found in alive))
        tensor = read(self, name)
        alive.append(weakref.ref(tensor))
        return tensor

    monkeypatch.setattr(SafetensorsFolder, "read", counted)
    source = SafetensorsFolder(folder)
    assemble(source.config(), source, CPU, torch.float32)
    assert len(alive) > 20 and most <= 1


def change(folder: Path, name: str, tensor: Tensor | None) -> None:
    content = load_file(folder / "model.safetensors")
    content.pop(name)
    save_file(content if tensor is None else {**content, name: tensor}, folder / "model.safetensors")


def test_scales_that_are_missing_or_of_another_shape_are_named(make_tiny: Any) -> None:
    folder = make_tiny("qwen3", **SHAPE).folder
    convert_to_fp8(folder)
    scales = "model.layers.0.self_attn.q_proj.weight_scale_inv"
    change(folder, scales, torch.ones(2, 1))
    with pytest.raises(ModelError, match=r"q_proj.weight_scale_inv' of .* has the shape \(2, 1\); .* need \(2, 2\)"):
        load_model(folder)
    change(folder, scales, None)
    with pytest.raises(ModelError, match=r"FP8 tensor .*q_proj.weight' of .* lacks its scales"):
        load_model(folder)


@pytest.mark.parametrize("wrong", [{"weight_block_size": [64, 64]}, {"fmt": "e5m2"}, {"activation_scheme": "static"}])
def test_other_fp8_schemes_are_refused(make_tiny: Any, edit_json: Any, wrong: dict[str, Any]) -> None:
    folder = make_tiny("qwen3", **SHAPE).folder
    convert_to_fp8(folder)
    settings = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128], **wrong}
    edit_json(folder / "config.json", quantization_config=settings)
    with pytest.raises(ModelError, match=r"quantised with 'fp8'.*blocks of 128 x 128"):
        load_model(folder)
