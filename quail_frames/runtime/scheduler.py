"""The loop: fill a batch, run it while the next is being built, hand the answers back.

The scheduler knows neither calls nor rows; an operator emits asks and consumes answers.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, Future
from contextlib import AbstractContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, Protocol, TypeVar, runtime_checkable

import pyarrow as pa

from quail_frames.errors import DeviceMemoryError, QuailFramesError
from quail_frames.runtime.batch import Batch, Float32
from quail_frames.runtime.batch_work import batch_work
from quail_frames.runtime.kv.memory import Memory
from quail_frames.runtime.operators.failures import Failed
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.room import Room
from quail_frames.runtime.split import run_in_halves

T = TypeVar("T", contravariant=True)

FULL = 0.75
"""While the device works, the next batch is built once this share of the token budget is ready."""
LEAST_BUDGET = 64
"""Tokens below which a lack of memory halves the budget no further."""
AHEAD = 3
"""How many token budgets of undecided input an operator reads ahead."""


class Model(Protocol):
    """What runs batches: a torch decoder, the oracle, the null model."""

    def reserve(self, pages: int) -> None:
        """Allocate KV memory."""
        ...

    def run(self, batch: Batch) -> list[Float32]:
        """Logits for every read of the batch, in order."""
        ...

    def clock(self) -> float:
        """Seconds on the device's clock."""
        ...


@runtime_checkable
class Prepares(Protocol):
    """A model that can do a part of a batch's work while the batch before it runs."""

    def prepare(self, batch: Batch) -> Callable[[], list[Float32]]:
        """Do that part; what is returned runs the batch as `run` does."""
        ...


class Operator(Protocol[T]):
    """A state machine that emits asks and consumes answers."""

    @property
    def waiting_tokens(self) -> int: ...
    @property
    def ready_tokens(self) -> int: ...
    @property
    def finished(self) -> bool: ...

    def read(self, batch: T, /) -> None: ...
    def fill(self, room: Room) -> None: ...
    def accept(self, tag: Any, logits: Float32, failed: Failed = ...) -> None: ...
    def settle(self) -> None: ...
    def take_output(self, last: bool) -> Iterator[pa.RecordBatch]: ...
    def close(self) -> None: ...


class Ran(NamedTuple):
    """Logits of a batch, the device's seconds, and how often it had to be halved to fit the device."""

    answers: list[Float32]
    seconds: float
    halved: int


@dataclass
class Running:
    """A batch under way."""

    answers: Future[Ran]
    tags: list[Any]
    tokens: int


class Scheduler:
    """Drives operators over one model and one KV memory; `lock` guards both against other threads.

    `vocabulary`: entries of a whole head row, of which read-outs count their share.
    """

    def __init__(
        self,
        model: Model,
        memory: Memory,
        budget: int,
        worker: Executor,
        lock: AbstractContextManager[Any],
        vocabulary: int = 1,
    ) -> None:
        self._model = model
        self._memory = memory
        self._budget = budget
        self._worker = worker
        self._lock = lock
        self._vocabulary = vocabulary

    def run(self, operator: Operator[T], source: Iterator[T], report: RunReport) -> Iterator[pa.RecordBatch]:
        """Pull input from `source`, yield the operator's output in order; closes the operator at the end."""
        started = time.perf_counter()
        running: Running | None = None
        following: Running | None = None
        more = True
        try:
            while True:
                more = more and self._read_ahead(operator, source)
                with self._lock:
                    following = self._start(operator, running, report)
                if following is None and running is None:
                    break
                if running is not None:
                    self._finish(operator, running, report)
                running, following = following, None
                report.seconds += time.perf_counter() - started
                yield from operator.take_output(last=False)
                started = time.perf_counter()
            yield from operator.take_output(last=True)
        finally:
            for batch in (running, following):
                if batch is not None:  # the operator's pages are in use until it has run
                    batch.answers.exception()
            with self._lock:
                operator.close()
            report.seconds += time.perf_counter() - started

    def _read_ahead(self, operator: Operator[T], source: Iterator[T]) -> bool:
        """Read until enough is waiting; False when the source has ended or no more is wanted."""
        while not operator.finished and operator.waiting_tokens < AHEAD * self._budget:
            batch = next(source, None)
            if batch is None:
                return False
            with self._lock:
                operator.read(batch)
        return not operator.finished

    def _start(self, operator: Operator[T], running: Running | None, report: RunReport) -> Running | None:
        """Build and submit the next batch; None where nothing can be asked, or too little while one runs."""
        if operator.finished or (running is not None and operator.ready_tokens < FULL * self._budget):
            return None
        room = Room(self._budget, self._memory)
        operator.fill(room)
        if room.empty and running is None:
            room.forced = True
            operator.fill(room)
        if room.empty:
            return None
        batch = room.build()
        report.batches += 1
        report.fresh_tokens += len(batch)
        report.work += batch_work(batch, self._vocabulary)
        report.reused_tokens += sum(int(block.prefix.sum()) for block in batch.blocks if block.readout is not None)
        return Running(self._submitted(batch), room.tags, len(batch))

    def _submitted(self, batch: Batch) -> Future[Ran]:
        model = self._model
        run: Callable[[], list[Float32]] = partial(model.run, batch)
        if isinstance(model, Prepares):
            run = model.prepare(batch)
        try:
            return self._worker.submit(_timed, model, batch, run)
        except RuntimeError as error:  # what the standard library raises once the worker is shut down
            raise closed_under_way() from error

    def _finish(self, operator: Operator[T], running: Running, report: RunReport) -> None:
        """Wait for a batch and hand its answers to the operator."""
        answers, seconds, halved = running.answers.result()
        report.device_seconds += seconds
        report.halved += halved
        if halved:
            self._budget = max(min(self._budget, running.tokens) >> halved, min(self._budget, LEAST_BUDGET))
        reading = [tag for tag in running.tags if tag is not None]
        with self._lock:
            for tag, logits in zip(reading, answers, strict=True):
                operator.accept(tag, logits)
            operator.settle()


def closed_under_way() -> QuailFramesError:
    """What a query raises whose engine is gone."""
    return QuailFramesError("the engine was closed while this query ran: end or close the query first, then the engine")


def _timed(model: Model, batch: Batch, run: Callable[[], list[Float32]]) -> Ran:
    started = model.clock()
    try:
        answers, halved = run(), 0
    except DeviceMemoryError:
        answers, halved = [], -1
    if halved:  # outside the handler: what the failed run holds is freed only once its exception is gone
        answers, halved = run_in_halves(model.run, batch)
    return Ran(answers, model.clock() - started, halved)
