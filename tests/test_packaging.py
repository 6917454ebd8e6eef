"""What is installed: names, files and commands of the distribution."""

from __future__ import annotations

import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import entry_points, metadata, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version
from typer.testing import CliRunner

from quail_frames.cli import app, installed

ROOT = Path(__file__).parents[1]
PINNED_EXTRAS = ("gpu", "openai", "notebooks", "dev")
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

pytestmark = pytest.mark.skipif(installed("quail-frames") is None, reason="runs from a source folder, not installed")


def pinned() -> dict[str, Version]:
    """Exact versions in constraints.txt by distribution name."""
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    return {name: Version(number) for name, number in pairs}


def declared() -> list[Requirement]:
    """Every requirement of the package and of the extras that the test environment installs."""
    project = PYPROJECT["project"]
    groups = [project["dependencies"], *(project["optional-dependencies"][extra] for extra in PINNED_EXTRAS)]
    return [Requirement(line) for group in groups for line in group if not line.startswith("quail-frames")]


@pytest.mark.parametrize("requirement", declared(), ids=lambda requirement: requirement.name)
def test_every_requirement_is_pinned_inside_its_open_range(requirement: Requirement) -> None:
    assert pinned()[requirement.name] in requirement.specifier


@pytest.mark.parametrize("requirement", declared(), ids=lambda requirement: requirement.name)
def test_the_tests_run_on_the_pinned_version(requirement: Requirement) -> None:
    if requirement.marker and not requirement.marker.evaluate():
        pytest.skip(f"{requirement.name} is not for this platform")
    assert Version(version(requirement.name)).public == str(pinned()[requirement.name])


def test_the_wheel_holds_types_marker_and_licence(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(tmp_path), str(ROOT)]
    subprocess.run(command, check=True)
    (wheel,) = tmp_path.glob("*.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert "quail_frames/py.typed" in names
    assert any(name.endswith("licenses/LICENSE") for name in names)
    assert all(name.startswith(("quail_frames/", "quail_frames-")) for name in names)


def test_the_distribution_names_its_licence_and_its_python() -> None:
    assert metadata("quail-frames")["License-Expression"] == "Apache-2.0"
    assert metadata("quail-frames")["Requires-Python"] == ">=3.11"


def test_the_command_is_installed() -> None:
    (command,) = entry_points(group="console_scripts", name="quail-frames")
    assert command.value == "quail_frames.cli:main"


def test_version_is_the_distributions_version() -> None:
    assert CliRunner().invoke(app, ["--version"]).stdout == f"quail-frames {version('quail-frames')}\n"


def test_doctor_names_versions_threads_cache_and_extras(tmp_path: Path) -> None:
    (tmp_path / "weights").write_bytes(b"0" * 2_000_000)
    found = CliRunner().invoke(app, ["doctor"], env={"QUAIL_FRAMES_CACHE": str(tmp_path), "COLUMNS": "200"})
    assert found.exit_code == 0
    for expected in (version("polars"), version("torch"), "threads", f"{tmp_path} (1 files, 2 MB)", "extra vllm"):
        assert expected in found.stdout
