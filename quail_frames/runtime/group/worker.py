"""One engine in a process of its own. It asks for input as its scheduler wants it, and sends answers as they come.

Messages are tuples whose first part is their name; runs are told apart by a number, so that several may be under way.
"""

from __future__ import annotations

import copy
import dataclasses
import signal
import threading
import warnings
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from multiprocessing.connection import Connection
from queue import SimpleQueue
from typing import Any

from quail_frames.cost.work import Work
from quail_frames.errors import ModelError, QuailFramesError, QuailFramesWarning
from quail_frames.plan.physical import Chain
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.report import RunReport


class Cancelled(Exception):
    """The run's consumer has gone."""


def serve(connection: Connection, model: str, options: dict[str, Any]) -> None:
    """Open an engine and serve requests until told to close."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal's Ctrl-C reaches all processes; the caller decides
    warnings.simplefilter("ignore", QuailFramesWarning)  # the caller warns of all engines' failures at once
    try:
        engine = Engine(model, **options)
    except Exception as error:  # whatever keeps it from opening is the caller's to know
        connection.send(("failed", portable(error)))
        return
    with engine:
        connection.send(("opened", engine.identity))
        Worker(connection, engine).serve()


class Worker:
    """The requests of one process."""

    def __init__(self, connection: Connection, engine: Engine) -> None:
        self._connection, self._engine = connection, engine
        self._sending = threading.Lock()
        self._inputs: dict[int, SimpleQueue[tuple[str, Any]]] = {}
        self._reports: dict[int, list[RunReport]] = defaultdict(list)

    def serve(self) -> None:
        """Requests in order; runs go to threads of their own."""
        while (message := self._received()) is not None:
            name, *content = message
            if name == "resolve":
                self._resolve(*content)
            elif name == "run":
                run, query, *plan = content
                report = RunReport()
                self._inputs[run] = SimpleQueue()
                self._reports[query].append(report)  # owns what the run retains, until the query ends
                threading.Thread(target=self._run, args=(run, report, *plan), daemon=True).start()
            elif name == "end":
                for report in self._reports.pop(content[0], []):
                    self._engine.end(report)
            elif content[0] in self._inputs:  # else the run has failed before its input came
                self._inputs[content[0]].put((name, content[1]))

    def _received(self) -> tuple[Any, ...] | None:
        try:
            message: tuple[Any, ...] = self._connection.recv()
        except (EOFError, OSError):  # the caller's process is gone
            return None
        return None if message[0] == "close" else message

    def _send(self, *message: Any) -> None:
        """Tell the caller; where its process is gone, `_received` ends this one."""
        with self._sending, suppress(BrokenPipeError, ConnectionResetError):
            self._connection.send(message)

    def _resolve(self, run: int, *arguments: Any) -> None:
        try:
            self._send("resolved", run, self._engine.resolve(*arguments))
        except Exception as error:  # raised again where it was asked for
            self._send("error", run, portable(error), RunReport())

    def _run(self, run: int, report: RunReport, plan: Any, partners: Any) -> None:
        source, told = self._source(run), RunReport()
        try:
            if isinstance(plan, Chain):
                batches = self._engine.run(plan, source, report)
            else:
                batches = self._engine.join(plan, source, partners, report)
            for batch in batches:
                self._send("output", run, batch, _news(report, told))
            self._send("done", run, _news(report, told))
        except Cancelled:
            self._send("done", run, _news(report, told))
        except Exception as error:  # raised again where the run was asked for
            self._send("error", run, portable(error), _news(report, told))
        finally:
            del self._inputs[run]

    def _source(self, run: int) -> Iterator[Any]:
        while True:
            self._send("need", run)
            name, rows = self._inputs[run].get()
            if name == "cancel":
                raise Cancelled
            if rows is None:
                return
            yield rows


def portable(error: Exception) -> Exception:
    """An error that another process can read: ours as they are, others by their name and words."""
    if isinstance(error, QuailFramesError):
        return error
    return ModelError(f"{type(error).__name__}: {error}")


def _news(report: RunReport, told: RunReport) -> RunReport:
    """What the report has counted since it was last told; seconds pass once for all processes, and are the caller's."""
    names = [field.name for field in dataclasses.fields(RunReport)]
    news = RunReport(**{name: _less(getattr(report, name), getattr(told, name)) for name in names})
    for name in names:
        setattr(told, name, copy.copy(getattr(report, name)))
    news.seconds = 0.0
    return news


def _less(now: Any, before: Any) -> Any:
    if isinstance(now, tuple | list):
        return now[len(before) :]
    return now + before * -1.0 if isinstance(now, Work) else now - before
