"""The loop for engines behind requests: asks go out as soon as they can be asked, answers are taken as they come.

There are no batches to wait for: a row's next question goes out when its last one is
answered, whatever became of its neighbours. Operators are those of the native runtime.
"""

from __future__ import annotations

import math
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from quail_frames.errors import QuailFramesWarning
from quail_frames.runtime.backends.asking import Answered, Asker, Reply, WholeAsk
from quail_frames.runtime.backends.prompts import PromptStore
from quail_frames.runtime.batch import AskBlock, Batch, Float32
from quail_frames.runtime.kv.memory import Memory
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.room import Room
from quail_frames.runtime.scheduler import AHEAD, Operator, closed_under_way

T = TypeVar("T", contravariant=True)

FIRST_TOKENS = 256
"""Tokens of the first asks of a run, before their lengths are known."""
WORTHWHILE = 0.25
"""New asks are built when this share of what may be under way has become free."""
TOGETHER_SECONDS = 0.003
"""Replies that come this close to each other are taken together: each round costs the host about a millisecond."""
OUTPUT_SECONDS = 0.25
"""Decided rows leave at least this often."""
SPAN = 1 << 16
"""Asks answered behind one that is still under way: beyond, nothing new goes out until it is answered."""


class RequestModel:
    """An engine behind requests, and the tokens of our contexts."""

    def __init__(self, asker: Asker) -> None:
        self.asker = asker
        self.store = PromptStore()
        self._asking, self._closed = threading.Lock(), False

    def reserve(self, pages: int) -> None:
        """Room for the tokens of contexts."""
        self.store.reserve(pages)

    def run(self, batch: Batch) -> list[Float32]:
        """Batches are never run as a whole."""
        raise NotImplementedError("asks of an engine behind requests go through RequestScheduler")

    def clock(self) -> float:
        """Seconds."""
        return time.perf_counter()

    def ask(self, asks: Sequence[WholeAsk], answered: Answered) -> Callable[[], None]:
        """Begin to ask; what is returned gives it up."""
        with self._asking:
            if self._closed:  # nobody would answer
                raise closed_under_way()
            return self.asker.ask(asks, answered)

    def close(self) -> None:
        """Give the engine back."""
        with self._asking:
            self._closed = True
        self.asker.close()


@dataclass(eq=False)
class Sent:
    """A block under way. `left` counts its asks without a reply, `first` numbers its first ask in the run."""

    block: AskBlock
    tag: Any
    first: int
    left: int


@dataclass(eq=False)
class Flight:
    """What one run has under way. `least_tokens` is the mean of new tokens of the block where it is lowest so far."""

    sent: list[Sent] = field(default_factory=list)
    replies: SimpleQueue[tuple[Sent, int, Reply | Exception]] = field(default_factory=SimpleQueue)
    cancels: dict[Sent, Callable[[], None]] = field(default_factory=dict)
    asks: int = 0
    tokens: int = 0
    begun: int = 0
    tokens_begun: int = 0
    least_tokens: float = math.inf

    @property
    def mean_tokens(self) -> float:
        """New tokens of an ask, so far."""
        return self.tokens_begun / self.begun if self.begun else 0.0

    @property
    def span(self) -> int:
        """Asks begun since the oldest one under way."""
        return self.begun - self.sent[0].first if self.sent else 0


class RequestScheduler:
    """Drives operators over one engine behind requests; `lock` guards memory and operators against other threads."""

    def __init__(self, model: RequestModel, memory: Memory, lock: AbstractContextManager[Any]) -> None:
        self._model = model
        self._asker = model.asker
        self._store = model.store
        self._memory = memory
        self._lock = lock

    def run(self, operator: Operator[T], source: Iterator[T], report: RunReport) -> Iterator[pa.RecordBatch]:
        """Pull input from `source`, yield the operator's output in order; closes the operator at the end."""
        flight, more, known = Flight(), True, len(report.failures)
        started = shown = time.perf_counter()
        try:
            while True:
                more = more and self._read_ahead(operator, source, flight)
                with self._lock:
                    self._send(operator, flight, report)
                if operator.finished or not flight.asks:
                    break
                self._take(operator, flight, report)
                now = time.perf_counter()
                report.seconds += now - started
                yield from operator.take_output(last=now - shown > OUTPUT_SECONDS)
                started = time.perf_counter()
                shown = started if now - shown > OUTPUT_SECONDS else shown
            yield from operator.take_output(last=True)
            warn_of_failures(len(report.failures) - known, report)
        finally:
            for cancel in flight.cancels.values():
                cancel()
            with self._lock:
                operator.close()
            report.seconds += time.perf_counter() - started

    def _read_ahead(self, operator: Operator[T], source: Iterator[T], flight: Flight) -> bool:
        """Read until enough is waiting; False when the source has ended or no more is wanted."""
        wanted = AHEAD * max(self._wanted_tokens(flight), 1)
        while not operator.finished and (self._asker.staged or operator.waiting_tokens < wanted):
            batch = next(source, None)
            if batch is None:
                return False
            with self._lock:
                operator.read(batch)
        return not operator.finished

    def _wanted_tokens(self, flight: Flight) -> float:
        """New tokens of all asks that may be under way."""
        if not flight.begun:
            return min(FIRST_TOKENS, self._asker.most_tokens)
        return min(self._asker.most_asks * flight.mean_tokens, self._asker.most_tokens)

    def _send(self, operator: Operator[T], flight: Flight, report: RunReport) -> None:
        """Ask as much as may be under way."""
        if self._asker.staged and flight.asks:
            return
        while not operator.finished and flight.span < SPAN:
            asks, tokens = self._asker.most_asks - flight.asks, self._asker.most_tokens - flight.tokens
            enough = asks >= WORTHWHILE * self._asker.most_asks and tokens >= WORTHWHILE * self._asker.most_tokens
            if flight.asks and not enough:
                return
            wanted = asks * flight.least_tokens if flight.begun else FIRST_TOKENS
            room = Room(max(1, int(min(wanted, tokens))), self._memory)
            operator.fill(room)
            if room.empty and not flight.asks:
                room.forced = True
                operator.fill(room)
            if room.empty:
                return
            report.batches += 1
            self._ask(room, flight)

    def _ask(self, room: Room, flight: Flight) -> None:
        tags = [tag for tag in room.tags if tag is not None]
        for (block, prompts), tag in zip(self._store.whole(room.build()), tags, strict=True):
            readout = block.readout
            if readout is None or not len(block):
                continue
            sent = Sent(block, tag, flight.begun, len(block))
            flight.sent.append(sent)
            flight.asks += len(block)
            flight.begun += len(block)
            flight.tokens += block.token_count
            flight.tokens_begun += block.token_count
            flight.least_tokens = min(flight.least_tokens, block.token_count / len(block))
            asks = [WholeAsk(own, readout) for own in prompts]
            flight.cancels[sent] = self._model.ask(asks, _into(flight, sent))

    def _take(self, operator: Operator[T], flight: Flight, report: RunReport) -> None:
        """Wait for a reply, but not so long that rows already decided are kept back; hand over all that have come."""
        waited = time.perf_counter()
        replies: list[tuple[Sent, int, Reply | Exception]] = []
        with suppress(Empty):
            replies.append(flight.replies.get(timeout=OUTPUT_SECONDS))
        if replies and flight.replies.qsize() < WORTHWHILE * self._asker.most_asks:
            time.sleep(TOGETHER_SECONDS)
        report.device_seconds += time.perf_counter() - waited
        while not flight.replies.empty():
            replies.append(flight.replies.get())
        parts: dict[Sent, dict[int, Reply]] = {}
        for sent, number, reply in replies:
            if isinstance(reply, Exception):
                raise reply
            parts.setdefault(sent, {})[number] = reply
        with self._lock:
            for sent, own in parts.items():
                self._accept(operator, sent, own, report)
                self._count(flight, sent, own, report)
            operator.settle()

    @staticmethod
    def _accept(operator: Operator[T], sent: Sent, replies: dict[int, Reply], report: RunReport) -> None:
        numbers = sorted(replies)
        own = [replies[number] for number in numbers]
        readout = sent.block.readout
        assert readout is not None
        nothing = np.full((len(sent.block.reads), len(readout.token_ids) + readout.normalize), np.nan, dtype=np.float32)
        logits = np.concatenate([nothing if reply.logits is None else reply.logits for reply in own])
        failed = {row: reply.reason for row, reply in enumerate(own) if reply.logits is None}
        operator.accept(sent.tag.part(np.array(numbers, dtype=np.int64)), logits, failed)

    @staticmethod
    def _count(flight: Flight, sent: Sent, replies: dict[int, Reply], report: RunReport) -> None:
        report.fresh_tokens += sum(reply.fresh for reply in replies.values())
        report.reused_tokens += sum(reply.reused for reply in replies.values())
        flight.asks -= len(replies)
        flight.tokens -= int(sent.block.tokens.lengths[list(replies)].sum())
        sent.left -= len(replies)
        if not sent.left:
            del flight.cancels[sent]
            flight.sent.remove(sent)


def _into(flight: Flight, sent: Sent) -> Callable[[int, Reply | Exception], None]:
    return lambda number, reply: flight.replies.put((sent, number, reply))


def warn_of_failures(count: int, report: RunReport) -> None:
    """Warn of the report's last so many failures."""
    if count > 0:
        last = report.failures[-1]
        rows = "1 answer is" if count == 1 else f"{count:,} answers are"
        warnings.warn(
            f"{rows} null because the endpoint gave none; the last was {last.call!r} of row {last.row}: {last.reason}. "
            "Pass report=qf.RunReport() and see pl.DataFrame(report.failures)",
            QuailFramesWarning,
            stacklevel=2,
        )
