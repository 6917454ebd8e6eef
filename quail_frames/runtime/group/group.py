"""`Engine` over several devices: the same interface, each device in a process of its own.

Rows go to the device that asks for them next, some 16 thousand tokens at a time; anchors whose documents an earlier
operator left resident go to the device that holds them. Results come in the input's order.
"""

from __future__ import annotations

import itertools
import os
import time
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from queue import SimpleQueue
from typing import Any, Literal

import pyarrow as pa

from quail_frames.errors import ModelError, QuailFramesError
from quail_frames.plan.calls import AiCall
from quail_frames.plan.physical import Chain, PairJoin, PlannedCall
from quail_frames.runtime.backends.scheduler import warn_of_failures
from quail_frames.runtime.group.opening import all_devices, settled
from quail_frames.runtime.group.owners import Owners, nobody
from quail_frames.runtime.group.pieces import Merger, Source
from quail_frames.runtime.group.processes import Hear, Processes
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.options import DEFAULT_MODEL, check_devices
from quail_frames.runtime.report import Failure, OrderChange, RunReport

Message = tuple[int, tuple[Any, ...]]
"""An engine's number, and what it sent of a run; ("ended",) where its process is gone."""


class EngineGroup:
    """An engine for each of several devices. Thread-safe; a context manager that ends their processes.

    Where one of the processes ends before its time, the runs under way fail with its device and rows, and the group is
    closed.

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
        told = check_devices(devices) or ()
        names = all_devices() if told == "all" else told
        self.model_name = model
        self._numbers = itertools.count()
        self._queues: dict[int, SimpleQueue[Message]] = {}
        self._queries: dict[int, tuple[RunReport, int]] = {}
        self._owners = Owners()
        self._lost: ModelError | None = None
        self._process = os.getpid()
        self._processes = Processes(model, names, settled(model, names, options))
        self._end = weakref.finalize(self, self._processes.close)
        self._processes.listen(_weak(weakref.WeakMethod(self._hear)))  # else the threads would keep the group alive
        self.identity = self._processes.identity

    def __enter__(self) -> EngineGroup:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __reduce__(self) -> Any:
        raise TypeError("an engine group belongs to its process: open one in the other process with qf.EngineGroup")

    @property
    def closed(self) -> bool:
        """Further runs raise."""
        return self._lost is not None or self._processes.closed

    def close(self) -> None:
        """End the processes; further runs raise."""
        if self._process == os.getpid():
            self._end()

    def resolve(self, call: AiCall, inputs: tuple[int, ...], anchors: tuple[int, ...] = ()) -> PlannedCall:
        """As `Engine.resolve`."""
        self._check_open()
        run, queue = self._opened_run()
        try:
            self._processes.send(0, "resolve", run, call, inputs, anchors)
            name, content = _reply(queue)
        finally:
            del self._queues[run]
        if name == "ended":
            raise self._processes.ended(0)
        if name != "resolved":
            raise content
        planned: PlannedCall = content
        return planned

    def run(
        self, plan: Chain, batches: Iterable[pa.RecordBatch], report: RunReport | None = None
    ) -> Iterator[pa.RecordBatch]:
        """As `Engine.run`."""
        self._check_open()
        report = RunReport() if report is None else report
        source = Source(iter(batches), nobody)
        return self._driven(plan, None, Merger(source, "row", plan.limit), report)

    def join(
        self,
        plan: PairJoin,
        anchors: Iterable[AnchorBatch],
        partners: pa.RecordBatch,
        report: RunReport | None = None,
        later: Sequence[pa.RecordBatch] = (),
    ) -> Iterator[pa.RecordBatch]:
        """As `Engine.join`; what `later` joins ask is not shared, for the devices would have to hear of it."""
        self._check_open()
        report = RunReport() if report is None else report
        source = Source(iter(anchors), partial(self._owners.of, self._query(report)))
        return self._driven(plan, partners, Merger(source, "anchor", None), report)

    def end(self, report: RunReport) -> None:
        """As `Engine.end`."""
        _, query = self._queries.pop(id(report), (report, -1))
        self._owners.forget(query)
        for engine in range(len(self._processes)) if query >= 0 and not self.closed else ():
            self._tell(engine, "end", query)

    def _driven(
        self, plan: Chain | PairJoin, partners: pa.RecordBatch | None, merger: Merger, report: RunReport
    ) -> Iterator[pa.RecordBatch]:
        """Answer the engines' wants until all are done; closing the iterator cancels the run."""
        run, queue = self._opened_run()
        query, found = self._query(report), RunReport()
        working, wanting = set[int](), set[int]()
        try:
            for engine in range(len(self._processes)):
                self._processes.send(engine, "run", run, query, plan, partners)
                working.add(engine)
            while working:
                started = time.perf_counter()
                engine, (name, *content) = queue.get()
                if name == "need":
                    wanting.add(engine)
                    rows = merger.give(engine)  # the user's own code may fail in here
                    if plan.retain and rows is not None:
                        self._owners.remember(query, rows, engine)
                    wanting.discard(engine)
                    self._tell(engine, "input", run, rows)
                else:
                    self._heard(engine, name, content, merger, found, working)
                found.seconds += time.perf_counter() - started
                yield from merger.ready()
                if merger.full:
                    break
            if not merger.full:
                yield from merger.ready()
        finally:
            self._cancel(run, queue, working, wanting)
            _add(report, found)
        warn_of_failures(len(found.failures), report)

    def _heard(
        self, engine: int, name: str, content: list[Any], merger: Merger, found: RunReport, working: set[int]
    ) -> None:
        """An output, or the end of an engine's part."""
        if name == "ended":
            merger.fail(engine, self._processes.ended(engine, merger.undecided(engine)))
        else:
            found.add(_in_the_input(content[-1], engine, merger))
        if name == "output":
            merger.accept(engine, content[0])
        else:
            working.discard(engine)
        if name == "error":
            merger.fail(engine, content[0])
        elif name == "done":
            merger.end(engine)

    def _cancel(self, run: int, queue: SimpleQueue[Message], working: set[int], wanting: set[int]) -> None:
        """Let the engines that still work stop, and wait until they have; a lost process ends the group."""
        try:
            for engine in wanting:
                self._tell(engine, "cancel", run, None)
            while working:
                engine, (name, *_) = queue.get()
                if name == "need":
                    self._tell(engine, "cancel", run, None)
                elif name in ("done", "error", "ended"):
                    working.discard(engine)
        finally:
            del self._queues[run]
            if self._lost is not None:
                self.close()

    def _tell(self, engine: int, *message: Any) -> None:
        """Answer an engine; where its process has ended, the thread that listens to it says so."""
        with suppress(ModelError):
            self._processes.send(engine, *message)

    def _query(self, report: RunReport) -> int:
        """A number for the query that this report counts."""
        if id(report) not in self._queries:
            self._queries[id(report)] = (report, next(self._numbers))
        return self._queries[id(report)][1]

    def _opened_run(self) -> tuple[int, SimpleQueue[Message]]:
        run = next(self._numbers)
        self._queues[run] = SimpleQueue()
        return run, self._queues[run]

    def _hear(self, engine: int, message: tuple[Any, ...] | None) -> None:
        """Pass a message on to the run that it belongs to; the end of a process to all."""
        if message is None:
            if not self._processes.closed:
                self._lost = self._processes.ended(engine)
            for queue in list(self._queues.values()):
                queue.put((engine, ("ended",)))
            return
        name, run, *content = message
        if run in self._queues:
            self._queues[run].put((engine, (name, *content)))

    def _check_open(self) -> None:
        if self._process != os.getpid():
            raise QuailFramesError(
                f"this engine group ({self.model_name}) was opened before the process was forked: open one in the new "
                "process, which multiprocessing.get_context('spawn') starts afresh"
            )
        if self._lost is not None:
            raise self._lost
        if self.closed:
            raise QuailFramesError(f"this engine group ({self.model_name}) is closed; open another EngineGroup")


def _weak(hear: weakref.WeakMethod[Hear]) -> Hear:
    def heard(engine: int, message: tuple[Any, ...] | None) -> None:
        method = hear()
        if method is not None:
            method(engine, message)

    return heard


def _reply(queue: SimpleQueue[Message]) -> tuple[str, Any]:
    """The answer of the first engine."""
    while True:
        engine, (name, *content) = queue.get()
        if engine == 0:
            return name, content[0] if content else None


def _in_the_input(news: RunReport, engine: int, merger: Merger) -> RunReport:
    """A report of an engine with the rows that it names numbered as in the whole input."""
    failures: list[Failure] = [replace(each, row=merger.row(engine, each.row)) for each in news.failures]
    changes: tuple[OrderChange, ...] = tuple(
        replace(each, row=merger.row(engine, each.row)) for each in news.order_changes
    )
    return replace(news, failures=failures, order_changes=changes)


def _add(report: RunReport, found: RunReport) -> None:
    """Add what a run found to its query's report, rows in order as a single engine names them."""
    found.failures.sort(key=lambda each: (each.row, -1 if each.partner is None else each.partner))
    found.order_changes = tuple(sorted(found.order_changes, key=lambda each: each.row))
    report.add(found)
