"""What the kernels compile to for GPUs that need not be there: tensor-core instructions, and nothing spilled.

A process of its own compiles, because Triton keeps its target for the life of a process.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]
SHARED_BYTES = {80: 163 << 10, 89: 99 << 10, 90: 227 << 10, 100: 227 << 10}
"""Largest shared memory of a thread block, CUDA C++ programming guide, table of compute capabilities."""
BF16_DOT = {80: "HMMA", 89: "HMMA", 90: "HGMMA", 100: "UTCHMMA"}
FP8_DOT = {89: "QMMA", 90: "QGMMA", 100: "UTCQMMA"}


def compiled(capability: int, *only: str) -> list[dict[str, Any]]:
    command = [sys.executable, "tests/kernels/ahead_of_time.py", str(capability), *(["--only", *only] if only else [])]
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    environment["PYTHONPATH"] = str(ROOT)
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr[-4000:]
    return [json.loads(line) for line in result.stdout.splitlines()]


def check(kernel: dict[str, Any]) -> None:
    assert kernel["local_loads_stores"] == 0, kernel
    assert kernel["stack_bytes"] == 0, kernel
    assert kernel["shared_bytes"] <= SHARED_BYTES[kernel["capability"]], kernel
    if "attention" in kernel["case"] and "merge" not in kernel["case"] and "bf16" in kernel["case"]:
        assert kernel["tensor_core"] == BF16_DOT[kernel["capability"]], kernel
    if "matmul" in kernel["case"]:
        assert kernel["tensor_core"] == FP8_DOT[kernel["capability"]], kernel


@pytest.mark.timeout(900)
def test_hopper_multiplies_on_warp_groups() -> None:
    kernels = compiled(90, "block_scaled_matmul fp8", "prefix_attention bf16")
    assert {kernel["tensor_core"] for kernel in kernels} == {"QGMMA", "HGMMA"}
    for kernel in kernels:
        check(kernel)


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("capability", [80, 89, 90, 100])
def test_no_kernel_spills(capability: int) -> None:
    kernels = compiled(capability)
    assert len(kernels) == (13 if capability == 80 else 19)
    for kernel in kernels:
        check(kernel)
