"""Matrix products of a decoder: which library computes them, chosen by a short measurement.

A tensor of weights is (outputs, inputs) whatever the library; `packed` says how it lies in memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from quail_frames.runtime.native.library import usable
from quail_frames.runtime.native.products import in_tiles, multiply, tiled
from quail_frames.runtime.options import Library

ROWS, INPUTS, OUTPUTS = 256, 768, 1536
"""The product that libraries are compared by: 0.6 GFLOP, some 10 ms of a core."""
ROUNDS, MOST_SECONDS = 5, 0.25
CLEARLY = 1.10
"""Another library than torch must be so much faster: well beyond the noise of a measurement (a few percent), so that
one process after another chooses alike and gives scores with the same last digits."""


class Product(Protocol):
    """`x @ weight.T + bias`: x (rows, inputs), weight as `packed` left it, bias (outputs,); (rows, outputs).

    With `out`, a contiguous tensor of that shape, the result is written there.
    """

    def __call__(self, x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor: ...


def by_torch(x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """torch's own choice: MKL or oneDNN on a CPU, cuBLAS on a GPU."""
    result: Tensor = torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)
    return result


def by_numpy(x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """NumPy's BLAS: OpenBLAS in its wheels, 15% faster than MKL on an AMD CPU with AVX2. Float32 only."""
    out = x.new_empty(len(x), len(weight)) if out is None else out
    np.matmul(x.numpy(), weight.t().numpy(), out=out.numpy())
    return out if bias is None else out.add_(bias)


def by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """oneDNN with weights in the order that its kernels read them in."""
    result: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, bias, "none", [], "")
    return result if out is None else out.copy_(result)


def by_amx(x: Tensor, weight: Tensor, bias: Tensor | None = None, out: Tensor | None = None) -> Tensor:
    """Our own C kernels in AMX tiles; torch for weights that do not fill whole tiles."""
    return multiply(x, weight, bias, out) if tiled(weight) else by_torch(x, weight, bias, out)


PRODUCTS: Mapping[Library, Product] = {"torch": by_torch, "numpy": by_numpy, "onednn": by_onednn, "amx": by_amx}


def packed(weight: Tensor, library: Library) -> Tensor:
    """The weights (outputs, inputs) as the library wants them; what was given may be freed then.

    In float32 on a CPU the transpose is what lies contiguous: MKL then multiplies 1 to 5% faster, OpenBLAS 3%
    (one core of an AVX2 machine, 256 to 2,048 rows, the shapes of SmolLM2-135M).
    """
    if library == "onednn":
        layout: Tensor = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous(), ROWS)
        return layout
    if library == "amx":
        return in_tiles(weight)
    transposed = weight.device.type == "cpu" and weight.dtype == torch.float32
    return weight.t().contiguous().t() if transposed else weight


def libraries(dtype: torch.dtype) -> Iterator[Library]:
    """Those that can multiply on this CPU in this type."""
    yield "torch"
    if dtype == torch.float32:
        yield "numpy"
    if torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise"):
        short = dtype == torch.bfloat16 and torch.ops.mkldnn._is_mkldnn_bf16_supported()
        if dtype == torch.float32 or short:
            yield "onednn"
    if usable(dtype) is not None:
        yield "amx"


@cache
def speeds(dtype: torch.dtype) -> Mapping[Library, float]:
    """GFLOP/s of each library in the calling thread, the best of a few rounds in turn; measured once in a process."""
    x, weight = torch.rand(ROWS, INPUTS, dtype=dtype), torch.rand(OUTPUTS, INPUTS, dtype=dtype)
    runs: dict[Library, Callable[[], Tensor]] = {}
    for library in libraries(dtype):
        runs[library] = _run(PRODUCTS[library], x, packed(weight, library))
    best = dict.fromkeys(runs, float("inf"))
    started = time.thread_time()  # of this thread: on a busy machine the clock tells little
    for number in range(ROUNDS + 1):
        for library, run in runs.items():
            seconds = _seconds(run)
            best[library] = min(best[library], seconds if number else float("inf"))  # the first loads and compiles
        if number and time.thread_time() - started > MOST_SECONDS:
            break
    return {library: 2e-9 * ROWS * INPUTS * OUTPUTS / seconds for library, seconds in best.items()}


def fastest(found: Mapping[Library, float]) -> Library:
    """The library of the best speed; torch unless another is clearly faster, and our kernels where they run at all.

    A product alone does not show what these gain: they compute what lies between products on the way.

    >>> fastest({"torch": 60.0, "numpy": 65.0}), fastest({"torch": 60.0, "numpy": 70.0})
    ('torch', 'numpy')
    >>> fastest({"torch": 1200.0, "onednn": 1600.0, "amx": 1500.0})
    'amx'
    """
    if "amx" in found:
        return "amx"
    best = max(found, key=lambda library: found[library])
    return best if found[best] > CLEARLY * found["torch"] else "torch"


def _run(product: Product, x: Tensor, weight: Tensor) -> Callable[[], Tensor]:
    return lambda: product(x, weight)


@torch.inference_mode()
def _seconds(run: Callable[[], Tensor]) -> float:
    started = time.thread_time()
    run()
    return time.thread_time() - started
