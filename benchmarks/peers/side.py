"""What the two sides exchange: asks, answers, and what a workload came to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import numpy.typing as npt

from benchmarks.common import Spent
from quail_frames.runtime.compiled import CompiledCall
from quail_frames.runtime.readouts.letters import LettersReadout
from quail_frames.runtime.readouts.true_false import TrueFalseReadout
from quail_frames.runtime.tokens.assemble import concatenate
from quail_frames.runtime.tokens.ragged import Int32, Int64, Ragged


@dataclass(frozen=True, eq=False)
class Choice:
    """The tokens that may answer, and the answer that each stands for."""

    tokens: Int32
    answers: Int64

    @staticmethod
    def of(call: CompiledCall) -> Choice:
        """TRUE and FALSE tokens stand for 1 and 0, a letter for its label's number."""
        tokens = call.spec.token_ids
        if isinstance(call.readout, TrueFalseReadout):
            return Choice(tokens, (np.arange(len(tokens)) < call.readout.true_tokens).astype(np.int64))
        assert isinstance(call.readout, LettersReadout)
        return Choice(tokens, np.arange(len(tokens)))

    def answer(self, tokens: Int64) -> Int64:
        """Answers of generated tokens."""
        order = np.argsort(self.tokens)
        return self.answers[order[np.searchsorted(self.tokens[order], tokens)]]

    def gaps(self, scores: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """How far the best answer is above the second, [prompts], from scores [prompts, tokens]."""
        best = [scores[:, self.answers == answer].max(axis=1) for answer in np.unique(self.answers)]
        ordered = np.sort(np.stack(best, axis=1), axis=1)
        gap: npt.NDArray[np.float64] = ordered[:, -1] - ordered[:, -2]
        return gap


@dataclass(frozen=True, eq=False)
class Prompts:
    """Prompts with their choices. `rows[i]` is the row, or the anchor, that asks prompt i."""

    lists: Ragged
    rows: Int64
    choices: Sequence[Choice]
    which: Int64
    """Number of each prompt's choice."""

    def __len__(self) -> int:
        return len(self.lists)

    def take(self, indices: Int64) -> Prompts:
        """Some of the prompts, in this order."""
        return Prompts(self.lists.take(indices), self.rows[indices], self.choices, self.which[indices])

    @staticmethod
    def of(lists: Ragged, rows: Int64, choice: Choice) -> Prompts:
        """Prompts with one choice."""
        return Prompts(lists, rows, (choice,), np.zeros(len(lists), dtype=np.int64))

    @staticmethod
    def by_row(parts: Sequence[Prompts]) -> Prompts:
        """All prompts of several sets, row by row, so that what a row shares is asked together."""
        first = np.cumsum([0, *(len(part.choices) for part in parts[:-1])])
        joined = Prompts(
            concatenate([part.lists for part in parts]),
            np.concatenate([part.rows for part in parts]),
            tuple(choice for part in parts for choice in part.choices),
            np.concatenate([part.which + start for part, start in zip(parts, first, strict=True)]),
        )
        return joined.take(np.argsort(joined.rows, kind="stable"))


@dataclass(frozen=True, eq=False)
class Asked:
    """Answer of each prompt, tokens computed, and time."""

    answers: Int64
    computed: int
    spent: Spent


class Asks(Protocol):
    """The other engine, as workloads use it."""

    def ask(self, prompts: Prompts) -> Asked:
        """The most likely answer of each prompt."""
        ...


@dataclass(eq=False)
class Outcome:
    """Answers of a workload's items, tokens computed, and time. `needed`: the prompts that had to be asked."""

    answers: Int64
    computed: int = 0
    spent: Spent = field(default_factory=Spent)
    needed: list[Prompts] = field(default_factory=list)

    def spend(self, asked: Asked) -> Int64:
        """Count an exchange; returns its answers."""
        self.computed += asked.computed
        self.spent += asked.spent
        return asked.answers
