"""`make gpu-check` runs from end to end where there is no GPU, with nothing but what it says it needs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

pytest.importorskip("triton")
ROOT = Path(__file__).parents[2]
NEEDED = ("torch", "triton", "numpy", "pyarrow", "transformers", "pytest")
BARE = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in MISSING:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Missing())
"""


def closure(distributions: tuple[str, ...]) -> set[str]:
    """These distributions and all that they need, by normalised names."""
    found, waiting = set[str](), list(distributions)
    while waiting:
        name = re.sub(r"[-_.]+", "-", waiting.pop()).lower()
        if name in found:
            continue
        found.add(name)
        try:
            required = metadata.requires(name) or []
        except metadata.PackageNotFoundError:  # of another platform
            continue
        waiting += [re.split(r"[^\w.-]", line, maxsplit=1)[0] for line in required if "extra ==" not in line]
    return found


def others() -> set[str]:
    """Modules that are installed here and would not be where only what is needed is."""
    known = closure(NEEDED)
    owners = metadata.packages_distributions()
    return {
        module
        for module, names in owners.items()
        if not known & {re.sub(r"[-_.]+", "-", name).lower() for name in names}
    }


def test_the_script_checks_and_measures_on_a_cpu_with_only_what_it_needs(tmp_path: Path) -> None:
    missing = others()
    assert {"polars", "sqlglot", "gguf", "platformdirs", "hypothesis", "cloudpickle"} <= missing
    (tmp_path / "sitecustomize.py").write_text(f"MISSING = {missing!r}\n{BARE}")  # its child processes run it too
    command = [sys.executable, "-m", "benchmarks.gpu_check", "--device", "cpu", "--out", str(tmp_path)]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{ROOT}", "OMP_NUM_THREADS": "1"}
    environment["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # plugins of distributions that would not be there
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
