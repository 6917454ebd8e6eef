"""Every shape on the oracle: its plan gives the answers of its whole prompts, and computes no less than must be."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from benchmarks.common import Spent
from benchmarks.peers.__main__ import refuse_other_answers
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
        """Greedy, token by token; every token is computed."""
        walks = [self._walk(prompts, number) for number in range(len(prompts))]
        self.asked += len(prompts)
        generated = [tokens for tokens, _ in walks]
        computed = len(prompts.lists.values) + sum(len(tokens) - 1 for tokens in generated)
        return Asked.of(prompts, generated, computed, Spent(1e-3, 1e-3))

    def gaps(self, prompts: Prompts) -> npt.NDArray[np.float64]:
        """The best answer's logit over the second's."""
        walks = [self._walk(prompts, number)[1] for number in range(len(prompts))]
        return np.array([prompts.choices[which].gap(steps) for which, steps in zip(prompts.which, walks, strict=True)])

    def reset(self) -> None:
        """Nothing is cached."""

    @staticmethod
    def _walk(prompts: Prompts, number: int) -> tuple[list[int], list[dict[int, float]]]:
        choice = prompts.choices[prompts.which[number]]
        tokens: list[int] = []
        steps: list[dict[int, float]] = []
        while following := choice.following(tokens):
            allowed = np.array(list(following), dtype=np.int32)
            prompt = np.concatenate([prompts.lists[number], np.array(tokens, dtype=np.int32)])
            scores = logits_of(state_of(prompt), allowed)[0]
            steps.append(dict(zip(allowed.tolist(), scores.tolist(), strict=True)))
            tokens.append(int(allowed[scores.argmax()]))
            if len(following[tokens[-1]]) == 1:
                break
        return tokens, steps


@pytest.mark.parametrize("shape", SHAPES, ids=lambda shape: shape.name)
def test_a_shape_has_the_same_answers_as_plan_and_as_prompts(shape: Shape) -> None:
    with Engine("oracle") as engine:
        chunks = shape.make(engine, 0.02)
        figures = measure(shape.name, chunks, engine, WholePrompts())
    assert figures.agreement == 1.0
    assert figures.widest_difference == 0.0
    # The minimum shares between rows in whole pages; our engine shares a call's own words to the token.
    computed = figures.peer_tokens if shape.name == "labels_77" else min(figures.fresh_tokens, figures.peer_tokens)
    assert figures.minimum_tokens <= computed


def test_an_answer_that_differs_is_reported_with_its_gap() -> None:
    class Contrary(WholePrompts):
        def ask(self, prompts: Prompts) -> Asked:
            asked = super().ask(prompts)
            return replace(asked, answers=1 - asked.answers)

    (shape,) = (shape for shape in SHAPES if shape.name == "join_20x60")
    with Engine("oracle") as engine:
        figures = measure(shape.name, shape.make(engine, 0.02), engine, Contrary())
        judged = measure(shape.name, shape.make(engine, 0.02), engine, Contrary(), judge=engine)
    assert figures.agreement == 0.0
    assert figures.widest_difference > 0.1
    assert (figures.ours_exact, judged.ours_exact, judged.peer_exact) == (None, 1.0, 0.0)
    refuse_other_answers([judged], noise=1e9)
    for refused, noise in ((figures, 1e9), (replace(judged, ours_exact=0.9), 1e9), (judged, 0.01)):
        with pytest.raises(SystemExit, match=r"differ by .* rounding.* in: join_20x60"):
            refuse_other_answers([refused], noise)


def test_what_must_be_asked_of_a_semi_join_ends_at_the_first_true() -> None:
    (shape,) = (shape for shape in SHAPES if shape.name == "semi_join")
    peer = WholePrompts()
    with Engine("oracle") as engine:
        outcomes = [chunk.theirs(peer) for chunk in shape.make(engine, 0.1)]
    assert sum(len(prompts) for outcome in outcomes for prompts in outcome.needed) < peer.asked
    assert all(needed_tokens(outcome) < outcome.computed for outcome in outcomes)


def test_a_choice_reads_generated_tokens_as_answers() -> None:
    yes_or_no = Choice(((30,), (10,), (20,)), np.array([1, 1, 0]))
    assert yes_or_no.decided([10]) == (1, 0)
    assert yes_or_no.gap([{30: 1.0, 10: 4.0, 20: 2.5}]) == 1.5
    labels = Choice(((5, 6, 7), (5, 8), (9,)), np.arange(3))
    assert [labels.decided(tokens) for tokens in ([5, 8], [5, 6, 7], [9])] == [(1, 1), (0, 1), (2, 0)]
    assert labels.gap([{5: 3.0, 9: 1.0}, {6: 0.0, 8: 0.5}]) == 0.5


@pytest.mark.skipif(find_spec("vllm") is not None, reason="this environment has vLLM")
def test_a_peer_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match="No module named 'vllm'"):
        Peer(sys.executable, PeerSettings(tmp_path, "float32", threads=1, max_length=64))


def test_cores_are_bound_by_name() -> None:
    cores = sorted(os.sched_getaffinity(0))
    assert bound_cores(1) == str(cores[0])
