"""The machine at hand as a device: peaks measured in a few seconds and kept in the user's cache directory.

The only place in `cost` that runs torch.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING

import platformdirs

from quail_frames.cost.cpu import cpu_model
from quail_frames.cost.devices import Device
from quail_frames.cost.shapes import Dtype, ModelShape
from quail_frames.errors import PlanError

if TYPE_CHECKING:
    import torch

MOST_SIDE = 8192
"""Larger matrices are measured by one of this side: the rate no longer changes."""
COPY_BYTES = 256 * 2**20
"""Well beyond any last-level cache of a core's share, small beside any memory."""
MATMUL_SECONDS = 0.4
COPY_SECONDS = 0.3


@dataclass(frozen=True)
class Measurement:
    """What was measured, with the key under which it is kept."""

    key: str
    flops: float
    """FLOP/s of the fastest matrix product at the model's sizes."""
    bandwidth: float
    """Bytes/s of a copy, read and write counted."""


def local_device(
    shape: ModelShape,
    *,
    memory_bytes: float | None = None,
    price_per_hour: float | None = None,
    fresh: bool = False,
    folder: Path | None = None,
) -> Device:
    """This machine's CPU as a device for a model.

    Parameters
    ----------
    shape
        Its sizes and dtype are those measured.
    memory_bytes
        None: the machine's memory, or the control group's limit where that is less.
    fresh
        Measure again, also where a measurement is kept.
    folder
        Where measurements are kept; None: the user's cache directory.
    """
    return _as_device(measured(shape, fresh=fresh, folder=folder), shape, memory_bytes, price_per_hour)


def kept_device(shape: ModelShape, folder: Path | None = None) -> Device | None:
    """This machine's CPU as it was measured before for a model; None where it was not. Measures nothing.

    Where torch is not loaded, a measurement with any number of threads will do.
    """
    directory = folder or _folder()
    torch = sys.modules.get("torch")
    threads = None if torch is None else f"{torch.get_num_threads()} threads"
    version = f"torch {metadata.version('torch').partition('+')[0]}"
    for path in sorted(directory.glob("*.json")):
        kept = Measurement(**json.loads(path.read_text(encoding="utf-8")))
        cpu, by, with_threads, *rest = kept.key.split(" | ")
        alike = [cpu, by.partition("+")[0], *rest] == [cpu_model(), version, shape.dtype, _sizes(shape)]
        if alike and threads in (None, with_threads):
            return _as_device(kept, shape)
    return None


def _as_device(
    found: Measurement, shape: ModelShape, memory_bytes: float | None = None, price_per_hour: float | None = None
) -> Device:
    memory = machine_memory() if memory_bytes is None else memory_bytes
    peaks: dict[Dtype, float] = {shape.dtype: found.flops}
    return Device("local", memory, found.bandwidth, peaks, price_per_hour, shared_memory=True)


def measured(shape: ModelShape, *, fresh: bool = False, folder: Path | None = None) -> Measurement:
    """Peaks of this machine's CPU for a model's sizes and dtype, from the cache or measured now (about two seconds).

    Keyed by CPU model, torch version, threads, dtype and matrix sizes. Other programs that run meanwhile lower what
    is measured: `fresh` measures again.
    """
    key = _key(shape)
    directory = folder or _folder()
    path = directory / f"{hashlib.blake2b(key.encode(), digest_size=8).hexdigest()}.json"
    if path.exists() and not fresh:
        return Measurement(**json.loads(path.read_text(encoding="utf-8")))
    found = Measurement(key, matmul_flops(shape), copy_bandwidth())
    directory.mkdir(parents=True, exist_ok=True)
    # Two processes may measure at once: each replaces the whole file.
    unfinished = path.with_suffix(f".{os.getpid()}.tmp")
    unfinished.write_text(json.dumps(asdict(found), indent=1), encoding="utf-8")
    unfinished.replace(path)
    return found


def matmul_flops(shape: ModelShape) -> float:
    """FLOP/s of the fastest `tokens x inputs @ inputs x outputs` at the model's MLP and projection sizes."""
    import torch

    dtype = _torch_dtype(shape.dtype)
    best = 0.0
    for inputs, outputs in _matrices(shape):
        weight = torch.randn(inputs, outputs, dtype=torch.float32).to(dtype)
        tokens = 64
        while True:
            rows = torch.randn(tokens, inputs, dtype=torch.float32).to(dtype)
            out = torch.empty(tokens, outputs, dtype=dtype)
            seconds = _best_seconds(partial(torch.mm, rows, weight, out=out), MATMUL_SECONDS / 4)
            best = max(best, 2.0 * tokens * inputs * outputs / seconds)
            if tokens >= 1024 or seconds > MATMUL_SECONDS / 4:
                break
            tokens *= 4
    return best


def copy_bandwidth() -> float:
    """Bytes/s of a copy between two buffers larger than the caches, read and write counted."""
    import torch

    source = torch.ones(COPY_BYTES // 4, dtype=torch.float32)
    target = torch.empty_like(source)
    return 2.0 * COPY_BYTES / _best_seconds(partial(target.copy_, source), COPY_SECONDS)


def machine_memory() -> float:
    """Bytes of memory of this machine, or of its control group where that is less."""
    if not hasattr(os, "sysconf"):
        raise PlanError("the memory of this machine cannot be read; pass memory_bytes to local_device")
    total = float(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"))
    limit = Path("/sys/fs/cgroup/memory.max")
    text = limit.read_text(encoding="utf-8").strip() if limit.exists() else "max"
    return total if text == "max" else min(total, float(text))


def _key(shape: ModelShape) -> str:
    import torch

    threads = torch.get_num_threads()
    return f"{cpu_model()} | torch {torch.__version__} | {threads} threads | {shape.dtype} | {_sizes(shape)}"


def _sizes(shape: ModelShape) -> str:
    return ",".join(f"{inputs}x{outputs}" for inputs, outputs in _matrices(shape))


def _folder() -> Path:
    return platformdirs.user_cache_path("quail-frames") / "devices"


def _matrices(shape: ModelShape) -> tuple[tuple[int, int], ...]:
    """Sizes of the query and of the up projection."""
    hidden = min(shape.hidden, MOST_SIDE)
    return (hidden, min(shape.heads * shape.head_dim, MOST_SIDE)), (hidden, min(shape.mlp, MOST_SIDE))


def _torch_dtype(dtype: Dtype) -> torch.dtype:
    import torch

    return {"fp32": torch.float32, "bf16": torch.bfloat16, "fp16": torch.float16}[dtype]


def _best_seconds(run: Callable[[], object], budget: float) -> float:
    """Seconds of the fastest of the runs that fit a time budget (two at least, the first is a warm-up)."""
    run()
    best, start = float("inf"), time.perf_counter()
    while best == float("inf") or time.perf_counter() - start < budget:
        began = time.perf_counter()
        run()
        best = min(best, time.perf_counter() - began)
    return best
