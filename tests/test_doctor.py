"""`quail-frames doctor` says which kernels each device would run, and what a pin changes."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from typer.testing import CliRunner

from quail_frames.cli import app
from quail_frames.kernels import override


@pytest.fixture
def fresh_choices(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """The environment may be changed: choices are made once, and here once more before and after."""
    monkeypatch.delenv("TRITON_INTERPRET", raising=False)
    override()
    yield monkeypatch
    monkeypatch.undo()
    override()


def doctor() -> str:
    found = CliRunner().invoke(app, ["doctor"], env={"COLUMNS": "200"})
    assert found.exit_code == 0
    return found.stdout


def test_it_names_the_kernels_of_the_cpu(fresh_choices: pytest.MonkeyPatch) -> None:
    fresh_choices.delenv("QUAIL_FRAMES_KERNELS", raising=False)
    assert re.search(r"kernels on cpu +torch for every operation", doctor())


def test_it_says_what_a_pin_does(fresh_choices: pytest.MonkeyPatch) -> None:
    fresh_choices.setenv("QUAIL_FRAMES_KERNELS", "restricted_head=triton")
    found = doctor()
    assert "pinned by QUAIL_FRAMES_KERNELS=restricted_head=triton" in found
    assert "restricted_head is pinned to 'triton', which cannot run on cpu: no CUDA device" in found


def test_it_names_who_multiplies_matrices() -> None:
    assert re.search(r"matrix products +\w+ \(GFLOP/s of a core in (b?float\d+): torch [\d,]+, \w+ [\d,]+", doctor())
