"""What an engine behind requests is to the runtime: whole asks go in, replies come back in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from quail_frames.runtime.backends.prompts import Prompts
from quail_frames.runtime.batch import Float32, ReadoutSpec


@dataclass(frozen=True, eq=False)
class WholeAsk:
    """One ask: its prompts, a read row each, and what is read there."""

    prompts: Prompts
    readout: ReadoutSpec


@dataclass(frozen=True, eq=False)
class Reply:
    """What came of an ask.

    logits          [rows, N] as `ReadoutSpec` says; None where there is no answer
    reason          why there is none
    fresh, reused   tokens that were computed for it, and that were found in a cache
    """

    logits: Float32 | None
    reason: str = ""
    fresh: int = 0
    reused: int = 0


Answered = Callable[[int, Reply | Exception], None]
"""Takes the number of an ask and its reply; an error ends the whole run."""


class Asker(Protocol):
    """An engine behind requests. `most_asks` and `most_tokens` are how much it likes to have under way.

    staged   every ask that can be asked now goes out at once, and the next stage when all are answered
    """

    most_asks: int
    most_tokens: int
    staged: bool

    def ask(self, asks: Sequence[WholeAsk], answered: Answered) -> Callable[[], None]:
        """Begin to ask; `answered` is called once for each ask, from any thread. Returns what cancels the rest."""
        ...

    def close(self) -> None:
        """Give everything back; asks under way are cancelled."""
        ...
