"""Queries end to end, in Python and in SQL, over real tables: what they ask, compute and take.

    python -m benchmarks.workloads                        all, small slices, on this machine's CPU
    python -m benchmarks.workloads --device null          all, whole tables, with a device that computes no model
    python -m benchmarks.workloads --only IMDB-4 --front sql

`--device null` answers from a hash of each whole prompt (about one in ten TRUE): its seconds are those of the host, and
its tokens those that a model would compute. Where both front ends run, their rows are compared, and the command fails
if they differ.
"""

from __future__ import annotations

import sys
from argparse import Namespace
from dataclasses import replace
from pathlib import Path

import torch

from benchmarks.common import Machine, model_options, show, write
from benchmarks.workloads.engines import open_engine
from benchmarks.workloads.measure import Bench, Figures, compare, run_query
from benchmarks.workloads.plot import plot
from benchmarks.workloads.query import Query
from benchmarks.workloads.record import Recorder
from benchmarks.workloads.suite import QUERIES
from benchmarks.workloads.tables import FULL, SLICE, Size, table
from quail_frames.cost.devices import Device, device, device_of_gpu
from quail_frames.cost.local import local_device
from quail_frames.cost.shapes import ModelShape

COLUMNS = ("query", "rows", "asks", "tokens", "minimum", "over", "again", "s", "SoL local", "SoL h100", "SQL = Python")


def size_of(options: Namespace) -> Size:
    """Whole tables for a device without a model, slices for one with."""
    size = FULL if options.device == "null" else SLICE
    if options.rows is not None:
        size = replace(size, rows=options.rows, most={})
    return size.scaled(options.scale) if options.scale != 1 else size


def chosen(only: str | None) -> tuple[Query, ...]:
    """The queries named, each by its id or its family."""
    names = {query.id: query for query in QUERIES}
    if only is None:
        return QUERIES
    found = [query for name in only.split(",") for query in QUERIES if name in (query.id, query.id.split("-")[0])]
    if not found:
        raise SystemExit(f"no query is called {only!r}; there are {', '.join(names)}")
    return tuple(found)


def measure(bench: Bench, query: Query, size: Size, front: str) -> Figures:
    """One query through one front end; with `both`, the figures are Python's."""
    frames = {name: table(name, size) for name in query.tables}
    if front == "both":
        return compare(bench, query, frames)[0].figures
    return run_query(bench, query, "sql" if front == "sql" else "python", frames).figures


def run(options: Namespace, machine: Machine) -> tuple[list[Figures], Size]:
    """All queries chosen, in turn, on one engine; what is known so far is written after each."""
    torch.set_num_threads(options.threads)
    size = size_of(options)
    with open_engine(options.device, size.base, options.model, options.dtype) as engine:
        shape = engine.shape.in_dtype("fp32") if options.dtype == "float32" else engine.shape
        bench = Bench(engine, Recorder.on(engine), here(options, shape), device("h100-sxm"), shape)
        found = []
        for query in chosen(options.only):
            found.append(measure(bench, query, size, options.front))
            print(_line(found[-1]), file=sys.stderr, flush=True)
            write_figures(options, found, size, machine)
    return found, size


def write_figures(options: Namespace, found: list[Figures], size: Size, machine: Machine) -> None:
    """The figures as JSON, where a file is named."""
    settings = {name: getattr(options, name) for name in ("model", "device", "dtype", "threads", "front", "scale")}
    write(options.json, {"queries": [each.as_dict() for each in found], "size": size.name, **settings}, machine)


def _line(figures: Figures) -> str:
    return f"{figures.id:<10} {figures.asks:>9,} asks {figures.fresh_tokens:>11,} tokens {figures.seconds:>8.2f} s"


def _row(figures: Figures) -> list[object]:
    same = {None: "", True: "yes", False: "NO"}[figures.sql_equals_python]
    counts = [figures.rows, figures.asks, figures.fresh_tokens, figures.minimum_tokens, figures.over_minimum]
    return [figures.id, *counts, figures.regret_tokens, figures.seconds, *_light(figures), same]


def _light(figures: Figures) -> tuple[str, str]:
    return f"{figures.sol_seconds:.4f}", f"{figures.sol_seconds_h100:.5f}"


def draw(options: Namespace, found: list[Figures], size: Size, machine: Machine) -> None:
    """The picture: a model's run beside its own device, the host's beside an H100."""
    alone = options.device == "null"
    words = "no model (host alone)" if alone else f"{options.model} on {options.device}"
    title = f"{words}, tables: {size.name}; {machine.cpu}, {machine.cores} cores"
    plot(options.plot, found, title, "h100-sxm" if alone else "this device", h100=alone)


def here(options: Namespace, shape: ModelShape) -> Device:
    """The device that `sol_seconds` is about: the GPU that runs the model, else this machine's CPU."""
    gpu = device_of_gpu(torch.cuda.get_device_name()) if options.device == "cuda" else None
    return gpu or local_device(shape)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = model_options(__doc__)
    parser.add_argument("--only", metavar="ID", help="queries or families, separated by commas")
    parser.add_argument("--front", choices=("both", "python", "sql"), default="both")
    parser.add_argument("--device", choices=("cpu", "cuda", "null"), default="cpu")
    parser.add_argument("--rows", type=int, metavar="N", help="rows of each table")
    parser.add_argument("--scale", type=float, default=1.0, help="so many times the rows of a slice")
    parser.add_argument("--plot", type=Path, metavar="FILE.png", help="draw measured seconds over the speed of light")
    options = parser.parse_args(arguments)
    machine = Machine.here()
    found, size = run(options, machine)
    caption = f"{options.model}, {options.device}, tables: {size.name}; {machine.line()}"
    show("Workloads", COLUMNS, [_row(figures) for figures in found], caption)
    if options.plot:
        draw(options, found, size, machine)
    if any(figures.sql_equals_python is False for figures in found):
        raise SystemExit("SQL and Python gave different rows")


if __name__ == "__main__":
    main()
