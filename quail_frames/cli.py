"""The quail-frames command: questions about the installation, answered in the terminal.

It may import every part of the package; each subcommand imports what it needs when it runs, so `--help` stays quick.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False)

LIBRARIES = ("polars", "torch", "numpy", "pyarrow", "tokenizers", "safetensors", "gguf", "sqlglot")
EXTRAS = {
    "gpu": ("triton",),
    "vllm": ("vllm",),
    "openai": ("httpx",),
    "ray": ("ray",),
    "notebooks": ("ipykernel", "ipywidgets", "nbclient", "nbformat"),
}


def main() -> None:
    """Entry point of the console script."""
    app()


def print_version(wanted: bool) -> None:
    """Answer `--version` and leave."""
    if wanted:
        typer.echo(f"quail-frames {installed('quail-frames')}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option(callback=print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """AI operators for Polars data frames."""


def installed(distribution: str) -> str | None:
    """Version of an installed distribution, None where it is missing."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@app.command()
def doctor() -> None:
    """Print what quail-frames finds on this machine: versions, processor, devices, model cache, extras."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, found in findings():
        table.add_row(name, found)
    Console().print(table)


def findings() -> Iterator[tuple[str, str]]:
    """What `doctor` prints: pairs of a name and what was found."""
    yield "quail-frames", installed("quail-frames") or "not installed (run from a source folder)"
    yield "python", f"{platform.python_version()} ({platform.platform()})"
    for library in LIBRARIES:
        yield library, installed(library) or "missing"
    yield from processor()
    yield from devices()
    yield from model_cache()
    for extra, distributions in EXTRAS.items():
        yield f"extra {extra}", extra_state(distributions)


def processor() -> Iterator[tuple[str, str]]:
    """The processor's vector instructions as torch sees them, and how many threads torch uses."""
    import torch

    yield "processor", f"{platform.machine()}, torch kernels for {torch.backends.cpu.get_cpu_capability()}"
    yield "threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores"


def devices() -> Iterator[tuple[str, str]]:
    """Accelerators that torch can use."""
    import torch

    if not torch.cuda.is_available():
        yield "cuda", f"no device (torch built for {torch.version.cuda or 'CPU only'})"
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        capability = f"compute capability {device.major}.{device.minor}"
        yield f"cuda:{index}", f"{device.name}, {device.total_memory / 2**30:.0f} GiB, {capability}"


def model_cache() -> Iterator[tuple[str, str]]:
    """Where fetched models are kept, and how much lies there."""
    from quail_frames.runtime.models.hub import cache_folder

    folder = cache_folder()
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    size = sum(path.stat().st_size for path in files)
    yield "model cache", f"{folder} ({len(files)} files, {size / 1e6:.0f} MB)"


def extra_state(distributions: tuple[str, ...]) -> str:
    """The versions of an extra's distributions, or which of them are missing."""
    found = {name: installed(name) for name in distributions}
    return ", ".join(f"{name} {number or 'missing'}" for name, number in found.items())
