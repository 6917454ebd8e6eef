"""`make gpu-check` runs from end to end where there is no GPU, with nothing but what it says it needs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]
BARE = """
import runpy, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"polars", "sqlglot", "gguf", "platformdirs", "hypothesis", "typer", "duckdb"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
runpy.run_module("benchmarks.gpu_check", run_name="__main__", alter_sys=True)
"""


def test_the_script_checks_and_measures_on_a_cpu(tmp_path: Path) -> None:
    command = [sys.executable, "-c", BARE, "--device", "cpu", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    environment.pop("TRITON_INTERPRET", None)
    run = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    checks = json.loads((tmp_path / "checks.json").read_text())
    assert [check["passed"] for check in checks] == [True] * 5
    figures = json.loads((tmp_path / "gpu.json").read_text())
    assert [query["name"] for query in figures["queries"]] == ["three filters", "join", "10 labels"]
    assert all(query["least"] > 0 and query["fresh_tokens"] > 0 for query in figures["queries"])
    assert len(figures["kernel_timings"]) >= 14
    table = run.stdout.rstrip().splitlines()
    assert table[-1].startswith("ok     figures") and any(row.startswith("three filters") for row in table)
