"""Weights from a Hugging Face folder: model.safetensors, or shards named by an index."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from quail_frames.errors import ModelError
from quail_frames.kernels.quantize import GROUP, dequantize_weight
from quail_frames.runtime.models.config import ModelConfig, config_from_huggingface
from quail_frames.runtime.models.weights import BlockScaled

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"
SCALES = "_scale_inv"
"""Ending of the tensor of block scales that belongs to an FP8 weight; the values are multiplied by them."""
FP8 = "F8_E4M3"


class SafetensorsFolder:
    """A `WeightSource` over a folder; shards are mapped, a tensor is read when asked for.

    Raises
    ------
    ModelError
        A file is missing or broken.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        shards = {path: _open(path) for path in shard_paths(folder)}
        self._files = {name: path for path, shard in shards.items() for name in shard.keys()}  # noqa: SIM118
        self._shards = shards

    def config(self) -> ModelConfig:
        """The model's shape, from config.json."""
        path = self._folder / "config.json"
        return config_from_huggingface(read_json(path), str(path))

    def names(self) -> frozenset[str]:
        scales = {name + SCALES for name in self._files}
        return frozenset(self._files) - scales

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._slice(name).get_shape())

    def read(self, name: str) -> Tensor:
        scaled = self.scaled(name)
        if scaled is not None:
            return dequantize_weight(scaled.values, scaled.scales)
        tensor = self._stored(name)
        if not tensor.is_floating_point() or tensor.element_size() < 2:
            raise ModelError(
                f"The tensor {self.place(name)} is stored as {tensor.dtype}; bf16, fp16, fp32 and block-scaled FP8 "
                "weights are read. Use such weights, or a GGUF file."
            )
        return tensor

    def scaled(self, name: str) -> BlockScaled | None:
        if self._slice(name).get_dtype() != FP8:
            return None
        shape, blocks = self.shape(name), name + SCALES
        if blocks not in self._files:
            raise ModelError(f"The FP8 tensor {self.place(name)} lacks its scales {blocks!r}. Fetch the files again.")
        needed = tuple(-(-side // GROUP) for side in shape)
        if self.shape(blocks) != needed:
            raise ModelError(
                f"The tensor {self.place(blocks)} has the shape {self.shape(blocks)}; blocks of {GROUP} x {GROUP} of "
                f"the weight {shape} need {needed}."
            )
        return BlockScaled(self._stored(name), self._stored(blocks).to(torch.float32))

    def place(self, name: str) -> str:
        return f"{name!r} of {self._files.get(name, self._folder)}"

    def sample(self, name: str) -> bytes:
        stored = self._slice(name)
        ends = (stored[:1], stored[-1:]) if stored.get_shape() else (self.read(name)[None],)
        content = b"".join(end.contiguous().view(torch.uint8).numpy().tobytes() for end in ends)
        return str(stored.get_dtype()).encode() + content

    def _stored(self, name: str) -> Tensor:
        tensor: Tensor = self._shards[self._files[name]].get_tensor(name)
        return tensor

    def _slice(self, name: str) -> Any:
        return self._shards[self._files[name]].get_slice(name)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object from a file of the model.

    Raises
    ------
    ModelError
        The file is missing or is not a JSON object.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ModelError(f"{path} is missing. Fetch the model's files again.") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise ModelError(f"{path} is not readable as JSON ({error}). Fetch the model's files again.") from error
    if not isinstance(data, dict):
        raise ModelError(f"{path} holds no JSON object. Fetch the model's files again.")
    return data


def shard_paths(folder: Path) -> list[Path]:
    """Files of the weights by the index, else the single file, whether they are there or not."""
    if not (folder / INDEX).exists():
        return [folder / SINGLE]
    return [folder / name for name in sorted(set(read_json(folder / INDEX).get("weight_map", {}).values()))]


def _open(path: Path) -> Any:
    try:
        return safe_open(path, framework="pt", device="cpu")
    except FileNotFoundError:
        raise ModelError(
            f"{path} is missing. Give a folder with all its safetensors weights ({SINGLE}, or the shards that {INDEX} "
            "names), or a .gguf file."
        ) from None
    except (SafetensorError, OSError) as error:
        raise ModelError(f"{path} is not a readable safetensors file ({error}). Fetch it again.") from error
