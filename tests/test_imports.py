"""The runtime, the kernels, the plan and the cost model work where Polars and sqlglot are not installed.

That the parts import each other in one direction only is checked by import-linter (`make lint`).
"""

from __future__ import annotations

import subprocess
import sys

import pytest

IMPORT_EVERY_MODULE = """
import importlib, pkgutil, sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"polars", "sqlglot"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocked())
part = importlib.import_module(sys.argv[1])
for module in pkgutil.walk_packages(part.__path__, part.__name__ + "."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        if error.name != "triton":  # the device kernels' own; there is none for macOS
            raise
assert not {"polars", "sqlglot"} & set(sys.modules)
"""


@pytest.mark.parametrize("part", ["runtime", "kernels", "cost", "plan"])
def test_every_module_imports_without_polars_and_sqlglot(part: str) -> None:
    command = [sys.executable, "-c", IMPORT_EVERY_MODULE, f"quail_frames.{part}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
