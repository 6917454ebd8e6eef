"""The C kernels, compiled once for a machine by its own C compiler and kept in the user's cache folder."""

from __future__ import annotations

import ctypes
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from functools import cache
from importlib import resources
from pathlib import Path

import torch

from quail_frames.runtime.cache import cache_folder

COMPILERS = ("cc", "gcc", "clang")
FLAGS = (
    *("-O3", "-std=gnu11", "-shared", "-fPIC", "-mfma", "-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq"),
    *("-mavx512bf16", "-mamx-tile", "-mamx-bf16"),
)
SOURCES = ("elementwise.c", "attention.c", "products.c")
HEADERS = ("bf16.h", "tiles.h", "packed_rows.h", "packing.h", "rows.h", "shares.h")
SECONDS = 120
"""How long a compiler may take; it needs one or two."""


@cache
def kernels() -> ctypes.CDLL | str:
    """The compiled kernels, or in a few words why this machine has none."""
    if not sys.platform.startswith("linux") or not _has_tiles():
        return "no AMX"
    compiler = next(filter(None, map(shutil.which, COMPILERS)), None)
    if compiler is None:
        return "no C compiler (install gcc or clang: attention and elementwise groups are several times faster)"
    try:
        library = _loaded(compiler)
    except (OSError, subprocess.SubprocessError) as error:
        said = (getattr(error, "stderr", None) or "").strip() or str(error)
        return f"{compiler} could not make them: {said.splitlines()[0]}"
    if library.request_tiles() != 0:
        return "the kernel of this system does not give out AMX tiles"
    for name in ("scratch_bytes", "product_scratch_bytes"):
        getattr(library, name).restype = ctypes.c_int64
    return library


def usable(dtype: torch.dtype) -> ctypes.CDLL | None:
    """The kernels where a model of this type can use them."""
    found = kernels() if dtype == torch.bfloat16 else "another type"
    return None if isinstance(found, str) else found


def _has_tiles() -> bool:
    """AMX and AVX512-BF16; the probes are private to torch, so one that is gone counts as a no."""
    probes = [getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported")]
    return all(probe is not None and probe() for probe in probes)


def _loaded(compiler: str) -> ctypes.CDLL:
    """The shared object of these sources; made where the cache folder has none that can be loaded."""
    source = resources.files(__package__) / "source"
    texts = [(source / name).read_bytes() for name in (*SOURCES, *HEADERS)]
    digest = hashlib.sha256(b"\0".join([*texts, " ".join((compiler, *FLAGS)).encode()])).hexdigest()[:16]
    folder = cache_folder() / "kernels"
    target = folder / f"cpu-{digest}.so"
    with suppress(OSError):  # there is none, or a disk that was full left half of one
        return ctypes.CDLL(str(target))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=folder) as place, resources.as_file(source) as files:
        made = Path(place) / target.name
        command = [compiler, *FLAGS, "-o", str(made), *(str(files / name) for name in SOURCES), "-lm"]
        subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECONDS)
        os.replace(made, target)  # whole or not at all, whoever else is making it
    return ctypes.CDLL(str(target))
