"""Triton kernels run here: natively on a CUDA device, else under Triton's interpreter, which must be set up front.

Without either, nothing here is collected; `tests/kernels/test_interpreted.py` starts the interpreter's process.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, settings

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"

if not (INTERPRETED or torch.cuda.is_available()):
    collect_ignore_glob = ["test_*.py"]

settings.register_profile(
    "kernels",
    deadline=None,
    max_examples=5 if INTERPRETED else 30,
    derandomize=True,
    database=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("kernels")


@pytest.fixture(autouse=True)
def poisoned_outputs() -> Iterator[None]:
    """Memory that torch hands out uninitialised holds NaN, so that what a kernel forgets to write is seen."""
    torch.use_deterministic_algorithms(True, warn_only=True)
    assert torch.empty(1).isnan().item()
    yield
    torch.use_deterministic_algorithms(False)
