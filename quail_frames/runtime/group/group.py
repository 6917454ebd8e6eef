"""`Engine` over several devices: the same interface, each device in a process of its own.

Rows go to the device that asks for them next, some 16 thousand tokens at a time; anchors whose documents an earlier
operator left resident go to the device that holds them. Results come in the input's order.
"""

from __future__ import annotations

import itertools
import multiprocessing
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from queue import SimpleQueue
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from quail_frames.errors import ModelError, QuailFramesError
from quail_frames.plan.calls import AiCall
from quail_frames.plan.physical import Chain, PairJoin, PlannedCall
from quail_frames.runtime.group.pieces import Merger, Rows, Source
from quail_frames.runtime.group.worker import serve
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.options import DEFAULT_MODEL
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.ragged import Int64

Message = tuple[int, tuple[Any, ...]]
"""An engine's number, and what it sent."""


class EngineGroup:
    """An engine for each of several devices. Thread-safe; a context manager that ends their processes.

    Parameters
    ----------
    model
        As in `Engine`.
    devices
        `"all"`: every CUDA device of this machine; or their names. A name may stand more than once.
    options
        As in `Engine`, the same for each device.

    Raises
    ------
    ModelError
        There is no device, or an engine cannot be opened on one.

    Examples
    --------
    >>> with EngineGroup("oracle", devices=["cpu", "cpu"]) as engine:     # doctest: +SKIP
    ...     answers = query.collect(engine=engine)
    """

    def __init__(
        self, model: str = DEFAULT_MODEL, *, devices: Literal["all"] | Sequence[str] = "all", **options: Any
    ) -> None:
        names = all_devices() if devices == "all" else list(devices)
        if not names:
            raise ModelError("devices=[]: name at least one device, for example devices=['cuda:0', 'cuda:1'].")
        self.model_name, self.closed = model, False
        self._numbers = itertools.count()
        self._queues: dict[int, SimpleQueue[Message]] = {}
        self._queries: dict[int, tuple[RunReport, int]] = {}
        self._owners: dict[int, dict[tuple[str | None, ...], int]] = {}
        self._sending = threading.Lock()
        spawn = multiprocessing.get_context("spawn")
        self._links: list[Connection] = []
        self._processes: list[BaseProcess] = []
        for name in names:
            ours, theirs = spawn.Pipe()
            process = spawn.Process(target=serve, args=(theirs, model, {**options, "device": name}), daemon=True)
            process.start()
            theirs.close()
            self._links.append(ours)
            self._processes.append(process)
        self.identity = self._opened(names)
        for engine in range(len(names)):
            threading.Thread(target=self._listen, args=(engine,), daemon=True).start()

    def __enter__(self) -> EngineGroup:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the processes; further runs raise."""
        if not self.closed:
            self.closed = True
            for link in self._links:
                try:
                    link.send(("close",))
                except OSError:
                    continue  # that process is gone already
            for process in self._processes:
                process.join(timeout=10)
                if process.is_alive():
                    process.terminate()

    def resolve(self, call: AiCall, inputs: tuple[int, ...], anchors: tuple[int, ...] = ()) -> PlannedCall:
        """As `Engine.resolve`."""
        self._check_open()
        run, queue = self._opened_run()
        self._send(0, "resolve", run, call, inputs, anchors)
        _, (name, found) = queue.get()
        del self._queues[run]
        if name != "resolved":
            raise found
        planned: PlannedCall = found
        return planned

    def run(
        self, plan: Chain, batches: Iterable[pa.RecordBatch], report: RunReport | None = None
    ) -> Iterator[pa.RecordBatch]:
        """As `Engine.run`."""
        self._check_open()
        report = RunReport() if report is None else report
        source = Source(iter(batches), _nobody)
        return self._driven(plan, None, Merger(source, "row", plan.limit), report)

    def join(
        self,
        plan: PairJoin,
        anchors: Iterable[AnchorBatch],
        partners: pa.RecordBatch,
        report: RunReport | None = None,
    ) -> Iterator[pa.RecordBatch]:
        """As `Engine.join`."""
        self._check_open()
        report = RunReport() if report is None else report
        known = self._owners.setdefault(self._query(report), {})

        def owner(rows: pa.RecordBatch) -> Int64:
            return np.array([known.get(key, -1) for key in _keys(rows)], dtype=np.int64)

        return self._driven(plan, partners, Merger(Source(iter(anchors), owner), "anchor", None), report)

    def end(self, report: RunReport) -> None:
        """As `Engine.end`."""
        _, query = self._queries.pop(id(report), (report, -1))
        self._owners.pop(query, None)
        for engine in range(len(self._links)) if query >= 0 and not self.closed else ():
            with suppress(ModelError):  # a process that has ended retains nothing
                self._send(engine, "end", query)

    def _driven(
        self, plan: Chain | PairJoin, partners: pa.RecordBatch | None, merger: Merger, report: RunReport
    ) -> Iterator[pa.RecordBatch]:
        """Answer the engines' wants until all are done; closing the iterator cancels the run."""
        run, queue = self._opened_run()
        query, working = self._query(report), set[int]()
        owners = self._owners.setdefault(query, {}) if plan.retain else None
        try:
            for engine in range(len(self._links)):
                self._send(engine, "run", run, query, plan, partners)
                working.add(engine)
            while working:
                started = time.perf_counter()
                engine, (name, *content) = queue.get()
                if name == "need":
                    rows = merger.give(engine)
                    _remember(owners, rows, engine)
                    self._send(engine, "input", run, rows)
                else:
                    self._heard(engine, name, content, merger, report, working)
                report.seconds += time.perf_counter() - started
                yield from merger.ready()
                if merger.full:
                    return
            yield from merger.ready()
        finally:
            self._cancel(run, queue, working)

    @staticmethod
    def _heard(
        engine: int, name: str, content: list[Any], merger: Merger, report: RunReport, working: set[int]
    ) -> None:
        """An output, or the end of an engine's part."""
        if name == "output":
            merger.accept(engine, content[0])
        else:
            working.discard(engine)
        if name == "error":
            merger.fail(engine, content[0])
        elif name == "done":
            merger.end(engine)
        if name != "error":
            report.add(content[-1])

    def _cancel(self, run: int, queue: SimpleQueue[Message], working: set[int]) -> None:
        """Let the engines that still work stop, and wait until they have."""
        while working:
            engine, (name, *_) = queue.get()
            if name == "need":
                self._send(engine, "cancel", run, None)
            elif name in ("done", "error"):
                working.discard(engine)
        del self._queues[run]

    def _query(self, report: RunReport) -> int:
        """A number for the query that this report counts."""
        if id(report) not in self._queries:
            self._queries[id(report)] = (report, next(self._numbers))
        return self._queries[id(report)][1]

    def _opened_run(self) -> tuple[int, SimpleQueue[Message]]:
        run = next(self._numbers)
        self._queues[run] = SimpleQueue()
        return run, self._queues[run]

    def _send(self, engine: int, *message: Any) -> None:
        try:
            with self._sending:
                self._links[engine].send(message)
        except OSError as error:
            raise _ended(engine) from error

    def _opened(self, names: Sequence[str]) -> str:
        """Wait for every engine; gives their common identity."""
        found = [_first(link, name) for link, name in zip(self._links, names, strict=True)]
        for name, content in found:
            if name == "failed":
                self.close()
                raise content
        return str(found[0][1])

    def _listen(self, engine: int) -> None:
        """Pass an engine's messages on to the runs that they belong to."""
        while True:
            try:
                name, run, *content = self._links[engine].recv()
            except (EOFError, OSError):
                break
            if run in self._queues:
                self._queues[run].put((engine, (name, *content)))
        for queue in list(self._queues.values()):
            queue.put((engine, ("error", _ended(engine))))

    def _check_open(self) -> None:
        if self.closed:
            raise QuailFramesError(f"this engine group ({self.model_name}) is closed; open another EngineGroup")


def all_devices() -> list[str]:
    """Every CUDA device of this machine."""
    import torch

    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if not names:
        raise ModelError(
            "devices='all': there is no CUDA device here. Use an Engine on device='cpu', or name devices, for example "
            "devices=['cpu', 'cpu']."
        )
    return names


def _ended(engine: int) -> ModelError:
    return ModelError(f"the process of engine {engine} has ended; open another EngineGroup")


def _first(link: Connection, name: str) -> tuple[str, Any]:
    try:
        found: tuple[str, Any] = link.recv()
    except EOFError:
        return "failed", ModelError(f"the process for device {name!r} ended before its engine was open")
    return found


def _nobody(rows: pa.RecordBatch) -> Int64:
    return np.full(rows.num_rows, -1, dtype=np.int64)


def _keys(rows: pa.RecordBatch) -> Iterator[tuple[str | None, ...]]:
    """The texts of each row."""
    texts = [column.to_pylist() for column in rows.columns if pa.types.is_string(column.type)]
    return zip(*texts, strict=True)


def _remember(owners: dict[tuple[str | None, ...], int] | None, rows: Rows | None, engine: int) -> None:
    """Note where the documents of retained rows lie."""
    if owners is not None and rows is not None:
        batch = rows.rows if isinstance(rows, AnchorBatch) else rows
        owners.update(dict.fromkeys(_keys(batch), engine))
