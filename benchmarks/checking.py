"""Checks that a benchmark runs one after the other, whatever breaks. Imports nothing: a GPU machine has little."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Check:
    """One check: whether it held, and what was found."""

    name: str
    passed: bool
    found: str
    seconds: float

    def __str__(self) -> str:
        """A line of a table."""
        return f"{'ok    ' if self.passed else 'FAILED'} {self.name:<44}{self.seconds:>7.1f} s  {self.found}"


def timed(name: str, run: Callable[[], tuple[bool, str]]) -> Check:
    """Runs a check and prints it; an error is a check that failed."""
    start = time.monotonic()
    try:
        passed, found = run()
    except Exception as error:  # whatever breaks on an unknown machine, the other checks still run
        passed, found = False, f"{type(error).__name__}: {error}".splitlines()[0]
    check = Check(name, passed, found, time.monotonic() - start)
    print(check, flush=True)
    return check
