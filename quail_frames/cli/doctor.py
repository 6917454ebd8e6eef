"""`quail-frames doctor`: what there is on this machine, and what of it is taken."""

from __future__ import annotations

import os
import platform
from collections.abc import Iterator
from importlib import metadata

from rich.console import Console
from rich.table import Table

LIBRARIES = ("polars", "torch", "numpy", "pyarrow", "tokenizers", "safetensors", "gguf", "sqlglot")
EXTRAS = {
    "gpu": ("triton",),
    "vllm": ("vllm",),
    "openai": ("aiohttp",),
    "ray": ("ray",),
    "notebooks": ("ipykernel", "ipywidgets", "nbclient", "nbformat"),
}


def installed(distribution: str) -> str | None:
    """Version of an installed distribution, None where it is missing."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


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
    yield from chosen_kernels()
    yield from model_cache()
    for extra, distributions in EXTRAS.items():
        yield f"extra {extra}", extra_state(distributions)


def processor() -> Iterator[tuple[str, str]]:
    """The processor's vector instructions as torch sees them, and how many threads torch uses."""
    import torch

    yield "processor", f"{platform.machine()}, torch kernels for {torch.backends.cpu.get_cpu_capability()}"
    yield "threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores"
    yield from matrix_products()
    yield "bfloat16 kernels", cpu_kernels()


def matrix_products() -> Iterator[tuple[str, str]]:
    """GFLOP/s of one core by each library that can multiply matrices here, in the type of `auto`; which is taken."""
    import torch

    from quail_frames.runtime.lanes import Lanes
    from quail_frames.runtime.models.load import resolve_dtype
    from quail_frames.runtime.models.products import fastest, speeds

    dtype = resolve_dtype("auto", torch.device("cpu"))
    found = Lanes(1).call(lambda: speeds(dtype))
    rates = ", ".join(f"{library} {speed:,.0f}" for library, speed in found.items())
    name = str(dtype).removeprefix("torch.")
    yield "matrix products", f"{fastest(found)} (GFLOP/s of a core in {name}: {rates})"


def cpu_kernels() -> str:
    """Whether bfloat16 on this CPU has the C kernels, and why not."""
    from quail_frames.runtime.native.library import kernels

    found = kernels()
    return f"none: {found}" if isinstance(found, str) else f"compiled in C for AMX ({found._name})"


def devices() -> Iterator[tuple[str, str]]:
    """Accelerators that torch can use."""
    import torch

    if not torch.cuda.is_available():
        yield "cuda", f"no device (torch built for {torch.version.cuda or 'CPU only'})"
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        capability = f"compute capability {device.major}.{device.minor}"
        yield f"cuda:{index}", f"{device.name}, {device.total_memory / 2**30:.0f} GiB, {capability}"


def chosen_kernels() -> Iterator[tuple[str, str]]:
    """What each GPU, and `device="kernels"` on the CPU, runs for every operation, and why others were left."""
    import torch

    from quail_frames.kernels import choices
    from quail_frames.kernels.dispatch import ENVIRONMENT

    yield (
        "kernels",
        f"pinned by {ENVIRONMENT}={os.environ[ENVIRONMENT]}" if os.environ.get(ENVIRONMENT) else "by device",
    )
    cards = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    for device in ("cpu", *cards):
        try:
            found = choices(device)
        except ValueError as error:  # a pin that this device cannot keep
            yield f"kernels on {device}", str(error)
            continue
        names = {choice.name for choice in found}
        whole = f"{names.pop()} for every operation" if len(names) == 1 else "\n".join(map(str, found))
        yield f"kernels on {device}", whole


def model_cache() -> Iterator[tuple[str, str]]:
    """Where fetched models are kept, and how much lies there."""
    from quail_frames.runtime.cache import cache_folder

    folder = cache_folder()
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    size = sum(path.stat().st_size for path in files)
    yield "model cache", f"{folder} ({len(files)} files, {size / 1e6:.0f} MB)"


def extra_state(distributions: tuple[str, ...]) -> str:
    """The versions of an extra's distributions, or which of them are missing."""
    found = {name: installed(name) for name in distributions}
    return ", ".join(f"{name} {number or 'missing'}" for name, number in found.items())
