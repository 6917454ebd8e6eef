"""Every shape on the oracle: its plan gives the answers of its whole prompts, and computes no less than must be."""

from __future__ import annotations

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.common import Spent
from benchmarks.peers.client import Peer, PeerSettings, bound_cores
from benchmarks.peers.measure import measure, needed_tokens
from benchmarks.peers.shapes import SHAPES, Shape
from benchmarks.peers.side import Asked, Choice, Prompts
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.oracle import logits_of, state_of


class WholePrompts:
    """The oracle asked prompt by prompt, without an engine."""

    def __init__(self) -> None:
        self.asked = 0

    def ask(self, prompts: Prompts) -> Asked:
        """Best answers; every token is computed."""
        tokens = [self._scores(prompts, number).argmax() for number in range(len(prompts))]
        choices = [prompts.choices[number] for number in prompts.which]
        self.asked += len(prompts)
        answers = [choice.answers[token] for choice, token in zip(choices, tokens, strict=True)]
        return Asked(np.array(answers, dtype=np.int64), len(prompts.lists.values), Spent(1e-3, 1e-3))

    def gaps(self, prompts: Prompts) -> npt.NDArray[np.float64]:
        """The best answer's logit over the second's."""
        choices = [prompts.choices[number] for number in prompts.which]
        scores = [self._scores(prompts, number)[None, :] for number in range(len(prompts))]
        return np.array([choice.gaps(row)[0] for choice, row in zip(choices, scores, strict=True)])

    def reset(self) -> None:
        """Nothing is cached."""

    @staticmethod
    def _scores(prompts: Prompts, number: int) -> npt.NDArray[np.float64]:
        tokens = prompts.choices[prompts.which[number]].tokens
        return logits_of(state_of(prompts.lists[number]), tokens)[0].astype(np.float64)


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_shape_has_the_same_answers_as_plan_and_as_prompts(shape: Shape) -> None:
    with Engine("oracle") as engine:
        chunks = shape.make(engine, 0.02)
        figures = measure(shape.name, chunks, engine, WholePrompts())
    assert figures.agreement == 1.0
    assert figures.widest_difference == 0.0
    assert figures.minimum_tokens <= min(figures.fresh_tokens, figures.peer_tokens)


def test_an_answer_that_differs_is_reported_with_its_gap() -> None:
    class Contrary(WholePrompts):
        def ask(self, prompts: Prompts) -> Asked:
            asked = super().ask(prompts)
            return Asked(1 - asked.answers, asked.computed, asked.spent)

    (shape,) = (shape for shape in SHAPES if shape.name == "join_20x60")
    with Engine("oracle") as engine:
        figures = measure(shape.name, shape.make(engine, 0.02), engine, Contrary())
    assert figures.agreement == 0.0
    assert figures.widest_difference > 0.1


def test_what_must_be_asked_of_a_semi_join_ends_at_the_first_true() -> None:
    (shape,) = (shape for shape in SHAPES if shape.name == "semi_join")
    peer = WholePrompts()
    with Engine("oracle") as engine:
        outcomes = [chunk.theirs(peer) for chunk in shape.make(engine, 0.1)]
    assert sum(len(prompts) for outcome in outcomes for prompts in outcome.needed) < peer.asked
    assert all(needed_tokens(outcome) < outcome.computed for outcome in outcomes)


def test_a_choice_reads_tokens_as_answers() -> None:
    choice = Choice(np.array([30, 10, 20], dtype=np.int32), np.array([1, 1, 0]))
    assert choice.answer(np.array([10, 20, 30])).tolist() == [1, 0, 1]
    assert choice.gaps(np.array([[1.0, 4.0, 2.5]])).tolist() == [1.5]


@pytest.mark.skipif(find_spec("vllm") is not None, reason="this environment has vLLM")
def test_a_peer_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="No module named 'vllm'"):
        Peer(sys.executable, PeerSettings(tmp_path, "float32", threads=1, max_length=64))


def test_cores_are_bound_by_name() -> None:
    cores = sorted(os.sched_getaffinity(0))
    assert bound_cores(1) == str(cores[0])
