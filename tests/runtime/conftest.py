"""The default model, fetched once into the user's cache and loaded once a session."""

from __future__ import annotations

from pathlib import Path

import pytest

from quail_frames.runtime.models.hub import resolve
from quail_frames.runtime.models.load import LoadedModel, load_model


@pytest.fixture(scope="session")
def default_model_file() -> Path:
    """The GGUF file of `smollm2-135m`."""
    return resolve("smollm2-135m")


@pytest.fixture(scope="session")
def default_model(default_model_file: Path) -> LoadedModel:
    """`smollm2-135m` in float32 on the CPU."""
    return load_model("smollm2-135m", dtype="float32")
