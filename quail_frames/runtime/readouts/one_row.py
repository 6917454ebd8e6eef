"""What every read-out says about its asks, and the simplest answer to it: one row, the prompt's last."""

from __future__ import annotations

from typing import ClassVar, Protocol

from quail_frames.runtime.batch import ReadoutSpec, TokenTree
from quail_frames.runtime.tokens.ragged import Ragged


class Readout(Protocol):
    """Tokens that follow the prompt's cue, and the rows that are read.

    spec     what is read in each row
    reads    rows of an ask, counted from its end (-1: the last token)
    tails    for each step, the tokens fed after the cue; most read-outs have one step
    tree     shape of the tail, where it is a tree
    depth    positions after the cue that the longest answer needs
    """

    @property
    def spec(self) -> ReadoutSpec: ...
    @property
    def reads(self) -> tuple[int, ...]: ...
    @property
    def tails(self) -> Ragged: ...
    @property
    def tree(self) -> TokenTree | None: ...
    @property
    def depth(self) -> int: ...


class OneRow:
    """A read-out that feeds nothing and reads the last token of the prompt."""

    reads: ClassVar[tuple[int, ...]] = (-1,)
    tails: ClassVar[Ragged] = Ragged.of([[]])
    tree: ClassVar[TokenTree | None] = None
    depth: ClassVar[int] = 0
