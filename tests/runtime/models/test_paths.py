"""A decoder answers alike on every path: tree or unified attention, whoever multiplies, in however many lanes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from quail_frames.errors import ModelError
from quail_frames.plan.calls import AiScore
from quail_frames.plan.physical import AnswerOutput, Chain, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime import lanes
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.step import Steps

TEXTS = [word * repeats for word, repeats in (("no ", 3), ("", 1), ("a longer one; ", 9), ("é", 20), ("no ", 7))]
QUESTIONS = ("Is it?", "And by its tone?", "Does it end well?")


@pytest.fixture
def folder(make_tiny: Any) -> Path:
    """A tiny model with tokens that begin TRUE and FALSE also after a space."""
    tiny: Path = make_tiny("llama", max_position_embeddings=2048).folder
    tokenizer = json.loads((tiny / "tokenizer.json").read_text())
    for letter in "TF":
        tokenizer["model"]["vocab"][f"Ġ{letter}"] = len(tokenizer["model"]["vocab"])
        tokenizer["model"]["merges"].append(["Ġ", letter])
    (tiny / "tokenizer.json").write_text(json.dumps(tokenizer))
    return tiny


def scores(folder: Path, **options: Any) -> np.ndarray:
    """[questions, rows] scores of TEXTS."""
    calls = [
        PlannedCall(AiScore(Template((f"{word} ", Slot(0))), ("text",)), (0,), "document_first", "true_false")
        for word in QUESTIONS
    ]
    outputs = tuple(AnswerOutput(word, number) for number, word in enumerate(QUESTIONS))
    plan = Chain(("text",), (), tuple(calls), tuple(range(len(calls))), None, outputs)
    with Engine(str(folder), dtype="float32", kv_budget=1 << 20, token_budget=600, **options) as engine:
        rows = pa.Table.from_batches(engine.run(plan, [pa.record_batch([pa.array(TEXTS)], names=["text"])]))
    return np.array([rows[word].to_pylist() for word in QUESTIONS])


def test_unified_attention_answers_as_the_tree_does(folder: Path) -> None:
    tree = scores(folder, attention="tree")
    np.testing.assert_allclose(scores(folder, attention="unified"), tree, atol=1e-5)
    assert tree.std() > 0.01, "the scores tell nothing apart"


@pytest.mark.parametrize("products", ["auto", "numpy", "onednn"])
def test_whoever_multiplies_gives_the_same(folder: Path, products: Any) -> None:
    np.testing.assert_allclose(scores(folder, products=products), scores(folder, products="torch"), atol=1e-5)


@pytest.mark.parametrize("threads", [1, 3])
def test_lanes_answer_as_one_thread_does(folder: Path, threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lanes, "LEAST_ROWS", 5)
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        found = scores(folder, products="torch")
        assert torch.get_num_threads() == threads
    finally:
        torch.set_num_threads(before)
    monkeypatch.setattr(Steps, "task_rows", 7)
    np.testing.assert_allclose(scores(folder, products="torch"), found, atol=1e-5)


def test_a_library_that_cannot_multiply_in_the_type_is_refused(folder: Path) -> None:
    with pytest.raises(ModelError, match="'numpy' cannot multiply in bfloat16 here: choose 'auto', 'torch'"):
        Engine(str(folder), dtype="bfloat16", products="numpy")
