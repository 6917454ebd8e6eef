"""The Python of README.md and docs/ works as it stands there; what needs a GPU, a server or a file is looked at."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import polars as pl
import pytest

import quail_frames as qf

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"```python\n(.*?)```", page.read_text(encoding="utf-8"), re.DOTALL)


def calls(name: str) -> Iterator[tuple[str, str]]:
    """(page, text) of every call of `qf.<name>` that can be made as it stands: with literals only."""
    for page in PAGES:
        for block in blocks(page):
            for node in ast.walk(ast.parse(block)):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == f"qf.{name}":
                    values = [*node.args, *(keyword.value for keyword in node.keywords)]
                    if not any(isinstance(part, ast.Name) for value in values for part in ast.walk(value)):
                        yield page.name, ast.unparse(node)


@pytest.fixture
def oracle() -> Iterator[None]:
    qf.configure("oracle")
    yield
    qf.close_default_engine()
    qf.configure("oracle")


@pytest.mark.usefixtures("oracle")
@pytest.mark.parametrize(("page", "call"), [(page, call) for page, call in calls("configure")], ids=str)
def test_every_configuration_is_one_that_is_taken(page: str, call: str) -> None:
    eval(call, {"qf": qf})


@pytest.mark.usefixtures("oracle")
def test_the_pages_about_planning_run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.chdir(ROOT)
    found = {"pl": pl, "qf": qf}
    for block in blocks(ROOT / "docs" / "planning.md"):
        exec(compile(block, "docs/planning.md", "exec"), found)
    printed = capsys.readouterr().out
    assert "As planned" in printed and "x its speed of light" in printed


@pytest.mark.usefixtures("oracle")
def test_the_readmes_joins_and_sql_run_and_can_be_looked_at() -> None:
    found: dict[str, object] = {"pl": pl, "qf": qf}
    _, joins, looking, _ = blocks(ROOT / "README.md")
    exec(compile(joins, "README.md", "exec"), found)
    pairs = found["pairs"]
    assert isinstance(pairs, qf.LazyFrame)
    assert pairs.collect().columns == ["id", "stars", "review", "aspect"]
    exec(compile(looking, "README.md", "exec"), found)
