"""What the two sides exchange: asks, answers, and what a workload came to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from benchmarks.common import Spent
from quail_frames.plan.calls import AiClassify
from quail_frames.runtime.compiled import CompiledCall, Tokenizer
from quail_frames.runtime.readouts.labels import LabelTokens
from quail_frames.runtime.readouts.letters import LettersReadout
from quail_frames.runtime.readouts.trie_decode import TrieDecodeReadout
from quail_frames.runtime.readouts.true_false import TrueFalseReadout
from quail_frames.runtime.tokens.assemble import assemble, concatenate
from quail_frames.runtime.tokens.layouts import Input
from quail_frames.runtime.tokens.ragged import Int64, Ragged


@dataclass(frozen=True, eq=False)
class Choice:
    """Token sequences that may follow a prompt, none the start of another, and the answer that each stands for.

    Generation is greedy over their trie: the most likely of the tokens that may come, until one sequence is left.
    """

    sequences: tuple[tuple[int, ...], ...]
    answers: Int64

    @staticmethod
    def of(call: CompiledCall, tokenizer: Tokenizer) -> Choice:
        """TRUE and FALSE tokens stand for 1 and 0, a letter or a label for the label's number."""
        tokens = call.spec.token_ids
        singles = tuple((int(token),) for token in tokens)
        if isinstance(call.readout, TrueFalseReadout):
            return Choice(singles, (np.arange(len(tokens)) < call.readout.true_tokens).astype(np.int64))
        if isinstance(call.readout, LettersReadout):
            return Choice(singles, np.arange(len(tokens)))
        if not isinstance(call.readout, TrieDecodeReadout) or not isinstance(call.planned.call, AiClassify):
            raise TypeError(f"scoring={call.planned.scoring!r} is no choice by greedy decoding")
        labels = LabelTokens.of(tokenizer, call.planned.call.labels)
        return Choice(labels.trie.labels, np.arange(len(labels.trie.labels)))

    def following(self, tokens: Sequence[int]) -> dict[int, list[int]]:
        """Tokens that may come after these, each with the numbers of the sequences that it leaves."""
        found: dict[int, list[int]] = {}
        for number, sequence in enumerate(self.sequences):
            if sequence[: len(tokens)] == tuple(tokens) and len(sequence) > len(tokens):
                found.setdefault(sequence[len(tokens)], []).append(number)
        return found

    def decided(self, tokens: Sequence[int]) -> tuple[int, int]:
        """(answer, tokens that had to be fed for it) of generated tokens."""
        for count in range(1, len(tokens) + 1):
            left = self.following(tokens[: count - 1])[tokens[count - 1]]
            if len(left) == 1:
                return int(self.answers[left[0]]), count - 1
        raise ValueError(f"the tokens {list(tokens)} leave more than one sequence")

    def gap(self, steps: Sequence[Mapping[int, float]]) -> float:
        """How far the best answer is above the second, from the scores of the tokens that could come at each step."""
        gaps: list[float] = []
        for scores in steps:
            best: dict[int, float] = {}
            for token, score in scores.items():
                answer = self._answer_of(token) if len(steps) == 1 else token
                best[answer] = max(score, best.get(answer, -np.inf))
            ordered = sorted(best.values())
            gaps += [ordered[-1] - ordered[-2]] if len(ordered) > 1 else []
        return min(gaps)

    def _answer_of(self, token: int) -> int:
        left = self.following(())[token]
        return int(self.answers[left[0]]) if len(left) == 1 else -1 - token


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

    def followed_by(self, tokens: Ragged) -> Prompts:
        """Each prompt with some tokens after it."""
        joined = assemble((Input(0), Input(1)), {0: self.lists, 1: tokens}, len(self))
        return Prompts(joined, self.rows, self.choices, self.which)

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
    """Answer of each prompt, the tokens that were fed after it, tokens computed, and time."""

    answers: Int64
    fed: Ragged
    computed: int
    spent: Spent

    @staticmethod
    def of(prompts: Prompts, generated: Sequence[Sequence[int]], computed: int, spent: Spent) -> Asked:
        """From what was generated after each prompt."""
        pairs = zip(prompts.which.tolist(), generated, strict=True)
        decided = [prompts.choices[number].decided(tokens) for number, tokens in pairs]
        fed = [tokens[:count] for tokens, (_, count) in zip(generated, decided, strict=True)]
        return Asked(np.array([answer for answer, _ in decided], dtype=np.int64), Ragged.of(fed), computed, spent)


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

    def spend(self, prompts: Prompts, asked: Asked) -> Int64:
        """Count an exchange; returns its answers."""
        self.needed.append(prompts.followed_by(asked.fed))
        self.computed += asked.computed
        self.spent += asked.spent
        return asked.answers
