"""The examples in docs/sql.md run."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import quail_frames as qf

TEXT = (Path(__file__).parents[2] / "docs" / "sql.md").read_text(encoding="utf-8")


def test_the_example_prints_a_plan(capsys: pytest.CaptureFixture[str]) -> None:
    example = re.search(r"```python\n(.*?)```", TEXT, re.DOTALL)
    assert example is not None
    namespace: dict[str, object] = {}
    exec(compile(example[1], "docs/sql.md", "exec"), namespace)
    assert "As planned" in capsys.readouterr().out
    assert isinstance(namespace["frame"], qf.LazyFrame)
