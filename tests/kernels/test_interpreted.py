"""The kernels' numbers without a GPU: `on_device` runs under Triton's interpreter, in a process of its own.

The interpreter must be chosen before Triton is imported and would change every other user of Triton in this process.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(1800)
@pytest.mark.skipif(torch.cuda.is_available(), reason="on_device runs natively")
def test_kernels_agree_with_their_references_under_the_interpreter() -> None:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/kernels/on_device"]
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stdout[-6000:] + result.stderr[-2000:]
