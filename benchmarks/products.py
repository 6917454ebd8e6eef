"""`python -m benchmarks.products`: GFLOP/s of a decoder's matrix products on one core, by library and number of rows.

What `LEAST_ROWS` and `TASK_ROWS` of `quail_frames.runtime.lanes` and the choice in
`quail_frames.runtime.models.products` rest on. The weights of several layers are multiplied in turn, so that they come
from memory as in a decoder; the time is the thread's own, so that a busy machine does little to it.
"""

from __future__ import annotations

import time

import torch
from torch import Tensor

from benchmarks.common import DTYPES, Machine, fast_dtype, options, show, write
from quail_frames.cost.shapes import shape
from quail_frames.runtime.lanes import Lanes
from quail_frames.runtime.models.products import PRODUCTS, Product, libraries, packed

ROWS = (1, 4, 8, 16, 32, 64, 128, 256, 512, 1024)
LAYERS = 8
ROUNDS = 4


def sizes(model: str) -> list[tuple[int, int]]:
    """(inputs, outputs) of a layer's fused projections."""
    of = shape(model)
    heads = of.head_dim * of.heads
    return [
        (of.hidden, heads + 2 * of.head_dim * of.kv_heads),
        (heads, of.hidden),
        (of.hidden, 2 * of.mlp),
        (of.mlp, of.hidden),
    ]


@torch.inference_mode()
def measure(model: str, dtype: torch.dtype) -> dict[str, dict[int, float]]:
    """GFLOP/s by library and number of rows, the best of some rounds in which the libraries take turns."""
    layer = sizes(model)
    weights = {
        library: [packed(torch.rand(outputs, inputs, dtype=dtype), library) for inputs, outputs in layer * LAYERS]
        for library in libraries(dtype)
    }
    found: dict[str, dict[int, float]] = {library: {} for library in weights}
    for rows in ROWS:
        states = [torch.rand(rows, inputs, dtype=dtype) for inputs, _ in layer] * LAYERS
        work = 2e-9 * rows * LAYERS * sum(inputs * outputs for inputs, outputs in layer)
        for _ in range(ROUNDS):
            for library, matrices in weights.items():
                speed = work / seconds(PRODUCTS[library], states, matrices)
                found[library][rows] = max(found[library].get(rows, 0.0), speed)
    return found


def seconds(product: Product, states: list[Tensor], matrices: list[Tensor]) -> float:
    """Processor time of all the products."""
    started = time.thread_time()
    for x, matrix in zip(states, matrices, strict=True):
        product(x, matrix)
    return time.thread_time() - started


def main() -> None:
    """Print the table."""
    parser = options(__doc__)
    parser.add_argument("--model", default="smollm2-135m", help="a shape that `quail_frames.cost.shapes` knows")
    parser.add_argument("--dtype", choices=DTYPES, default=fast_dtype())
    arguments = parser.parse_args()
    found = Lanes(1).call(lambda: measure(arguments.model, getattr(torch, arguments.dtype)))
    machine = Machine.here()
    rows = [(count, *(speeds[count] for speeds in found.values())) for count in ROWS]
    show(f"GFLOP/s of one core, {arguments.model} {arguments.dtype}", ("rows", *found), rows, machine.line())
    write(arguments.json, {"model": arguments.model, "dtype": arguments.dtype, "gflops": found}, machine)


if __name__ == "__main__":
    main()
