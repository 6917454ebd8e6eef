"""Triton kernels run here: natively on a CUDA device, else under Triton's interpreter, which must be set up front.

Without either, nothing here is collected; `tests/kernels/test_interpreted.py` starts the interpreter's process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

# Without this setting cuBLAS warns of every float64 product that the deterministic mode below sees.
os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
if not (INTERPRETED or torch.cuda.is_available()):
    collect_ignore_glob = ["test_*.py"]

try:
    from hypothesis import HealthCheck, settings
except ModuleNotFoundError:  # `make gpu-check` runs on machines without it: the tests of whole models and shapes remain
    collect_ignore = [file.name for file in Path(__file__).parent.glob("test_*.py") if "hypothesis" in file.read_text()]
else:
    settings.register_profile(
        "kernels",
        deadline=None,
        max_examples=5 if INTERPRETED else 30,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
    )
    settings.load_profile("kernels")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """On a CUDA device everything here is a GPU check, so that `-m gpu` runs all of it."""
    here = [item for item in items if item.path.parent == Path(__file__).parent]
    for item in here if torch.cuda.is_available() else []:
        item.add_marker(pytest.mark.gpu)


@pytest.fixture(autouse=True)
def poisoned_outputs() -> Iterator[None]:
    """Memory that torch hands out uninitialised holds NaN, so that what a kernel forgets to write is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(1).isnan().item()
    yield
    torch.use_deterministic_algorithms(False)
