"""What every benchmark shares: its options, the facts of the machine, tables and JSON."""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

from quail_frames.runtime.models.load import resolve_dtype

LIBRARIES = ("quail-frames", "torch", "transformers", "polars", "numpy", "pyarrow")
DTYPES = ("float32", "bfloat16")


def options(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options of every benchmark."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there")
    return parser


def model_options(description: str | None) -> argparse.ArgumentParser:
    """Those, and the ones of benchmarks that run a model."""
    parser = options(description)
    parser.add_argument("--model", default="smollm2-135m", help="a built-in model, a path, or a Hugging Face id")
    parser.add_argument(
        "--dtype", choices=DTYPES, default=fast_dtype(), help="of both sides (default here: %(default)s)"
    )
    parser.add_argument("--threads", type=int, default=cores(), help="of both sides (default here: %(default)s)")
    return parser


def fast_dtype() -> str:
    """bfloat16 where the CPU has AMX or AVX512-BF16, else float32."""
    return str(resolve_dtype("auto", torch.device("cpu"))).removeprefix("torch.")


def cores() -> int:
    """CPU cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@dataclass(frozen=True)
class Machine:
    """Where and with what a figure was measured; `load` is the load average of the minute before."""

    cpu: str
    cores: int
    vector_unit: str
    load: float
    system: str
    python: str
    versions: Mapping[str, str]
    date: str

    @staticmethod
    def here() -> Machine:
        """This machine, now."""
        return Machine(
            cpu=_cpu_name(),
            cores=cores(),
            vector_unit=torch.backends.cpu.get_cpu_capability(),
            load=round(os.getloadavg()[0], 2) if hasattr(os, "getloadavg") else float("nan"),
            system=f"{platform.system()} {platform.machine()}",
            python=platform.python_version(),
            versions=_versions(),
            date=datetime.now(UTC).isoformat(timespec="seconds"),
        )

    def line(self) -> str:
        """One line for a table's caption."""
        return f"{self.cpu} ({self.vector_unit}), {self.cores} cores, load {self.load}, {self.date}"


def _cpu_name() -> str:
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def _versions() -> dict[str, str]:
    found = {}
    for library in LIBRARIES:
        try:
            found[library] = metadata.version(library)
        except metadata.PackageNotFoundError:
            found[library] = "not installed"
    return found


@dataclass(frozen=True)
class Spent:
    """Seconds by the clock, and of processor time of all threads (which a busy machine inflates less)."""

    wall: float = 0.0
    processor: float = 0.0

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.wall + other.wall, self.processor + other.processor)


class Watch:
    """Counts from when it was made."""

    def __init__(self) -> None:
        self._wall, self._processor = time.perf_counter(), time.process_time()

    def spent(self) -> Spent:
        """Until now."""
        return Spent(time.perf_counter() - self._wall, time.process_time() - self._processor)


def show(title: str, columns: Sequence[str], rows: Sequence[Sequence[object]], caption: str) -> None:
    """Print a table, numbers aligned on the right, and the caption below it."""
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 0 else "right")
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    console = Console(width=None if os.isatty(1) else 120)
    console.print(table)
    console.print(caption, highlight=False, soft_wrap=True)


def _cell(value: object) -> str:
    if isinstance(value, float):
        return f"{value:,.3f}" if abs(value) < 10 else f"{value:,.1f}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def write(path: Path | None, figures: Mapping[str, Any], machine: Machine) -> None:
    """Write the figures, and what they were measured on, as JSON; nothing where no path is given."""
    if path is not None:
        content = {**figures, "machine": {**machine.__dict__, "versions": dict(machine.versions)}}
        path.write_text(json.dumps(content, indent=2) + "\n")
