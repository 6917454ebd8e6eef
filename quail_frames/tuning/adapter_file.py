"""Adapter files written and read for training: int8 factors with a scale a row, the decision head, facts as metadata.

The engine reads the same files, see `quail_frames.runtime.models.adapter`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from quail_frames.runtime.models.adapter import read_adapter
from quail_frames.tuning.head import HEAD
from quail_frames.tuning.lora import LoraShape

LEVELS = 127
LEAST_SCALE = 5e-7
"""A row of zeros still needs a scale; float16 goes down to 6e-8."""


@dataclass(frozen=True)
class AdapterFacts:
    """What an adapter file says of itself.

    Attributes
    ----------
    base
        Name of the model that it changes.
    rank, alpha
        A projection's change is `alpha / rank * B @ A`.
    pooling, temperature, bias
        The score of a question is `sigmoid((true - false) / temperature + bias)`.
    choice_temperature, letters_temperature
        What logits of options are divided by.
    label_scoring
        What `scoring="auto"` means for the model.
    recipe_seed, recipe_tokens
        How to train it again.
    """

    base: str
    rank: int
    alpha: float
    pooling: str = "logsumexp"
    temperature: float = 1.0
    bias: float = 0.0
    choice_temperature: float = 1.0
    letters_temperature: float = 1.0
    label_scoring: str = "decision_choice"
    recipe_seed: int = 0
    recipe_tokens: int = 0

    @property
    def lora(self) -> LoraShape:
        """Rank and alpha."""
        return LoraShape(self.rank, self.alpha)


def quantised(tensor: Tensor) -> tuple[Tensor, Tensor]:
    """int8 rows and their scales, float16: row i is `scales[i] * rows[i]`.

    >>> rows, scales = quantised(torch.tensor([[0.5, -1.27], [0.0, 0.0]]))
    >>> rows.tolist()
    [[50, -127], [0, 0]]
    """
    scales = (tensor.abs().amax(dim=1) / LEVELS).clamp_min(LEAST_SCALE).to(torch.float16)
    rows = torch.round(tensor / scales.to(torch.float32)[:, None]).clamp(-LEVELS, LEVELS)
    return rows.to(torch.int8), scales


def write_adapter(path: Path, tensors: Mapping[str, Tensor], facts: AdapterFacts) -> None:
    """Write factors and head, as `TrainingDecoder` and `Reader` name them, to a safetensors file."""
    stored: dict[str, Tensor] = {}
    for name, tensor in tensors.items():
        values = tensor.detach().to(torch.float32)
        if name.startswith(HEAD):
            stored[name] = values.to(torch.bfloat16)
        else:
            stored[name], stored[f"{name}_scale"] = quantised(values)
    path.parent.mkdir(parents=True, exist_ok=True)
    save_file(stored, path, metadata={name: str(value) for name, value in asdict(facts).items()})


def trainable(path: Path) -> tuple[dict[str, Tensor], AdapterFacts]:
    """Factors and head in float32, and the file's facts; to be trained on or to be looked at.

    Raises
    ------
    ModelError
        The file cannot be read, or is no adapter.
    """
    adapter = read_adapter(path)
    with safe_open(path, framework="pt") as file:
        facts = _facts(file.metadata())
    names = [name for name in adapter.tensors if not name.endswith("_scale")]
    return {name: adapter.factor(name) for name in names}, facts


def _facts(metadata: Mapping[str, str]) -> AdapterFacts:
    kinds = {"int": int, "float": float, "str": str}
    fields = AdapterFacts.__dataclass_fields__
    return AdapterFacts(
        **{name: kinds[str(fields[name].type)](text) for name, text in metadata.items() if name in fields}
    )
