"""Ask a model the held-out suite: `python -m benchmarks.quality --model smollm2-135m --model smollm2-135m-decide`."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import torch
from rich.console import Console

import quail_frames as qf
from benchmarks.common import Machine, cores, fast_dtype, options, write
from benchmarks.quality.asking import Result
from benchmarks.quality.report import ModelReport, Row, plot
from benchmarks.quality.tasks import TASKS, flips


def main() -> None:
    """Measure every model named, print its table, and write what was asked for."""
    parser = options(__doc__)
    parser.add_argument("--model", action="append", help="a model as in qf.configure; several are compared")
    parser.add_argument("--limit", type=int, metavar="N", help="most texts of a task (default: each task's own number)")
    parser.add_argument("--dtype", default=fast_dtype(), help="of the weights (default here: %(default)s)")
    parser.add_argument("--threads", type=int, default=cores(), help="default here: %(default)s")
    parser.add_argument("--plots", type=Path, metavar="FOLDER", help="draw a reliability diagram and accuracies there")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    machine = Machine.here()
    reports: list[ModelReport] = []
    for model in arguments.model or ["smollm2-135m"]:
        for report in measure(model, arguments.limit, arguments.dtype):
            found = [*reports, report]
            write(arguments.json, {"limit": arguments.limit, "models": [each.figures() for each in found]}, machine)
        reports.append(report)
        report.show()
    if arguments.plots is not None:
        plot(reports, arguments.plots)


def measure(model: str, limit: int | None, dtype: str = "auto") -> Iterator[ModelReport]:
    """The suite for one model: a report after every task, the last one of all; prints figures as they come."""
    started, results, console = time.perf_counter(), list[Result](), Console(stderr=True)
    with qf.Engine(model, dtype=dtype) as engine:
        for task in TASKS:
            for result in task(engine, limit):
                results.append(result)
                console.print(" | ".join((model, *Row.of(result).cells())), highlight=False, soft_wrap=True)
            yield ModelReport.of(model, results, {}, time.perf_counter() - started)
        yield ModelReport.of(model, results, flips(engine), time.perf_counter() - started)


if __name__ == "__main__":
    main()
