"""The processes of a group: starting them, telling them things, hearing from them, and ending them whatever happens."""

from __future__ import annotations

import multiprocessing
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess
from typing import Any

from quail_frames.errors import ModelError
from quail_frames.runtime.group.worker import serve

Hear = Callable[[int, tuple[Any, ...] | None], None]
ENDING_SECONDS = 10.0
"""How long a process may take to end by itself: its batch is computed to the end."""


class Processes:
    """A process with an engine for each device.

    Raises
    ------
    ModelError
        An engine cannot be opened; no process is left then.
    """

    def __init__(self, model: str, devices: Sequence[str], options: Mapping[str, Any]) -> None:
        self.devices = tuple(devices)
        self._sending = threading.Lock()
        self._links: list[Connection] = []
        self._started: list[BaseProcess] = []
        self.closed = False
        try:
            for device in devices:
                self._start(model, {**options, "device": device})
            self.identity = self._opened()
        except BaseException:  # an interrupt too: a process that nobody knows would stay
            self.close(seconds=0.0)
            raise

    def __len__(self) -> int:
        return len(self.devices)

    def listen(self, hear: Hear) -> None:
        """From now on call `hear(engine, message)`, from a thread for each process; one that has ended says None."""
        for engine in range(len(self)):
            threading.Thread(target=_listen, args=(engine, self._links[engine], hear), daemon=True).start()

    def send(self, engine: int, *message: Any) -> None:
        """Tell a process something; ModelError where it has ended."""
        try:
            with self._sending:
                self._links[engine].send(message)
        except OSError as error:
            raise self.ended(engine) from error

    def ended(self, engine: int, rows: tuple[int, int] | None = None) -> ModelError:
        """What to say of a process that is gone, and of the rows that it had in work."""
        process = self._started[engine]
        process.join(timeout=1.0)  # so that its exit code is known
        code = "" if process.exitcode is None else f" with exit code {process.exitcode}"
        work = "" if rows is None else f", with rows {rows[0]:,} to {rows[1]:,} in work"
        return ModelError(
            f"the process for device {self.devices[engine]!r} (engine {engine}) has ended{code}{work}: "
            "open another EngineGroup"
        )

    def close(self, seconds: float = ENDING_SECONDS) -> None:
        """End all processes; those that do not end by themselves in so many seconds are killed."""
        self.closed = True
        for link in self._links:
            with self._sending, suppress(OSError):  # that process is gone already
                link.send(("close",))
        for process in self._started:
            process.join(timeout=seconds)
            if process.is_alive():
                process.kill()
                process.join()

    def _start(self, model: str, options: dict[str, Any]) -> None:
        spawn = multiprocessing.get_context("spawn")
        ours, theirs = spawn.Pipe()
        process = spawn.Process(target=serve, args=(theirs, model, options), daemon=True)
        self._links.append(ours)
        process.start()
        self._started.append(process)
        theirs.close()

    def _opened(self) -> str:
        """Wait for every engine; gives their common identity."""
        found = [_first(link, device) for link, device in zip(self._links, self.devices, strict=True)]
        for name, content in found:
            if name == "failed":
                raise content
        return str(found[0][1])


def _listen(engine: int, link: Connection, hear: Hear) -> None:
    """Pass a process' messages on until it has ended."""
    while True:
        try:
            message = link.recv()
        except (EOFError, OSError):
            hear(engine, None)
            return
        hear(engine, message)


def _first(link: Connection, device: str) -> tuple[str, Any]:
    try:
        found: tuple[str, Any] = link.recv()
    except EOFError:
        return "failed", ModelError(f"the process for device {device!r} ended before its engine was open")
    return found
