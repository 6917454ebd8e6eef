"""The room left in the batch being filled, and the memory that its asks may take."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from quail_frames.runtime.batch import AskBlock, Batch, build_batch
from quail_frames.runtime.kv.memory import Memory
from quail_frames.runtime.tokens.ragged import Int64


@dataclass
class Room:
    """Collects asks until the token budget is spent.

    An ask longer than the whole budget is taken when the batch is still empty, so that
    nothing waits forever. `forced` says that no ask is under way: an operator that waits
    for memory now goes on without keeping anything.
    """

    budget: int
    memory: Memory
    forced: bool = False
    blocks: list[AskBlock] = field(default_factory=list)
    tags: list[Any] = field(default_factory=list)
    tokens: int = 0

    @property
    def left(self) -> int:
        """Tokens that still fit."""
        return max(self.budget - self.tokens, 0)

    @property
    def empty(self) -> bool:
        """No ask was added yet."""
        return not self.blocks

    def fitting(self, lengths: Int64) -> int:
        """How many of the asks with these lengths, taken in order, fit."""
        count = int(np.searchsorted(np.cumsum(lengths), self.left, side="right"))
        return 1 if count == 0 and self.empty and len(lengths) else count

    def add(self, block: AskBlock, tag: Any) -> None:
        """Put a block into the batch; `tag` comes back with its answers."""
        self.blocks.append(block)
        self.tags.append(tag)
        self.tokens += block.token_count

    def build(self) -> Batch:
        """The batch of everything added."""
        return build_batch(self.blocks, self.memory.contexts, self.memory.take_copies())
