"""The README's example runs and prints what the README shows."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import polars as pl
import pytest

import quail_frames as qf

ROOT = Path(__file__).parents[1]
FIGURES = re.compile(r"^((?:tokens|batches|seconds)[a-zA-Z ]*?) +[\d,.]+$", re.MULTILINE)
"""Figures of the report that depend on the machine or on how batches fall."""


def block(language: str) -> str:
    """The first code block of this language in README.md."""
    found = re.search(rf"```{language}\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
    assert found is not None
    return found[1]


def test_the_example_prints_what_the_readme_shows(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> None:
    monkeypatch.chdir(ROOT)
    qf.configure(dtype="float32")  # `auto` is bfloat16 on some processors, which rounds the scores otherwise
    request.addfinalizer(qf.configure)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), pl.Config(tbl_width_chars=100):
        exec(compile(block("python"), "README.md", "exec"), {})
    assert FIGURES.sub(r"\1", printed.getvalue()) == FIGURES.sub(r"\1", block("text"))


def test_every_link_leads_to_a_file() -> None:
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert links and [link for link in links if not (ROOT / link).exists()] == []
