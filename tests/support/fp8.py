"""Writes a model again as Qwen3-*-FP8 are published: e4m3 projections with scales of 128 x 128 blocks."""

from __future__ import annotations

import json
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

SUFFIX = "_proj.weight"
SETTINGS = {
    "quant_method": "fp8",
    "fmt": "e4m3",
    "activation_scheme": "dynamic",
    "weight_block_size": [128, 128],
    "modules_to_not_convert": ["lm_head", "model.embed_tokens"],
}


def block_quantized(weight: Tensor) -> tuple[Tensor, Tensor]:
    """e4m3 values, and the scale of each block: its largest magnitude / 448."""
    rows, columns = weight.shape
    padded = torch.nn.functional.pad(weight.float(), (0, -columns % 128, 0, -rows % 128))
    blocks = padded.unflatten(1, (-1, 128)).unflatten(0, (-1, 128))
    scales = (blocks.abs().amax(dim=(1, 3)) / 448).clamp(min=1e-12)
    values = (blocks / scales[:, None, :, None]).flatten(2, 3).flatten(0, 1)[:rows, :columns]
    return values.contiguous().to(torch.float8_e4m3fn), scales


def convert_to_fp8(folder: Path, kept: tuple[str, ...] = ()) -> dict[str, Tensor]:
    """Rewrites every projection but those whose name holds one of `kept`; gives the dequantised state.

    The scales are bfloat16 numbers, as published.
    """
    expanded: dict[str, Tensor] = {}
    for file in sorted(folder.glob("*.safetensors")):
        stored: dict[str, Tensor] = {}
        for name, tensor in load_file(file).items():
            if not name.endswith(SUFFIX) or any(part in name for part in kept):
                stored[name] = expanded[name] = tensor
                continue
            values, scales = block_quantized(tensor)
            scales = scales.to(torch.bfloat16)
            stored[name], stored[f"{name}_scale_inv"] = values, scales
            wide = scales.float().repeat_interleave(128, 0)[: len(values)].repeat_interleave(128, 1)
            expanded[name] = values.float() * wide[:, : values.shape[1]]
        save_file(stored, file, metadata={"format": "pt"})
    _forget_index(folder)
    config = folder / "config.json"
    skipped = [*SETTINGS["modules_to_not_convert"], *kept]
    settings = {**SETTINGS, "modules_to_not_convert": skipped}
    config.write_text(json.dumps({**json.loads(config.read_text()), "quantization_config": settings}))
    return expanded


def _forget_index(folder: Path) -> None:
    """Shards keep their names; the index learns of the scales."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        found = {name: file.name for file in sorted(folder.glob("*.safetensors")) for name in load_file(file)}
        index.write_text(json.dumps({"metadata": {}, "weight_map": found}))
