"""Adapter files by name, and what their headers say. Imports no torch, so that a query can be priced without it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError, safe_open

from quail_frames.errors import ModelError

ADAPTERS = Path(__file__).parent / "adapters"
PACKAGED = {"smollm2-135m-decide": ADAPTERS / "smollm2-135m-decide.safetensors"}
"""Adapters that come with the package, by the name that a user types."""
SUFFIX = ".safetensors"
DECISION_HEAD = "decision_head."
"""Start of the names of a decision head's tensors, which are no part of the decoder."""
CALIBRATION = ("temperature", "bias", "choice_temperature", "letters_temperature")
CHOICES = ("pooling", "label_scoring")


@dataclass(frozen=True)
class AdapterHeader:
    """What an adapter file says of itself.

    base       name of the model that it changes
    scale      alpha / rank
    spec       fields of `ModelSpec` that it gives: pooling, calibration, label scoring
    has_head   whether it holds a decision head
    """

    base: str
    scale: float
    spec: Mapping[str, Any]
    has_head: bool


def adapter_path(name: str | os.PathLike[str]) -> Path | None:
    """The adapter file that a model's name stands for; None where it stands for something else.

    Raises
    ------
    ModelError
        A packaged adapter is not in this installation.
    """
    text = os.fspath(name)
    path = PACKAGED.get(text, Path(text).expanduser())
    if path.suffix == SUFFIX and path.is_file():
        return path
    if text in PACKAGED:
        raise ModelError(f"The model {text!r} lacks its file {path}. Install quail-frames again.")
    return None


def read_header(path: Path) -> AdapterHeader:
    """The header of an adapter file.

    Raises
    ------
    ModelError
        The file cannot be read, or is no adapter.
    """
    try:
        with safe_open(path, framework="numpy") as file:
            metadata, names = file.metadata() or {}, list(file.keys())
    except (SafetensorError, OSError) as error:
        raise unreadable(path, error) from error
    missing = [name for name in ("base", "rank", "alpha") if name not in metadata]
    if missing:
        raise ModelError(
            f"{path} does not say its {missing[0]}, so it is no adapter. Give the folder of a model's weights instead, "
            "or an adapter file, which names its base, rank and alpha."
        )
    spec = {name: float(metadata[name]) for name in CALIBRATION if name in metadata}
    spec |= {name: metadata[name] for name in CHOICES if metadata.get(name)}
    scale = float(metadata["alpha"]) / float(metadata["rank"])
    return AdapterHeader(metadata["base"], scale, spec, any(name.startswith(DECISION_HEAD) for name in names))


def unreadable(path: Path, error: Exception) -> ModelError:
    """The error of a file that is cut short or of another kind."""
    return ModelError(f"{path} is not a readable safetensors file ({error}). Write or fetch it again.")
