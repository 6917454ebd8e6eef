"""A decoder answers alike on every path: tree or unified attention, plain or fused layers, a compiler or none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from quail_frames.plan.calls import AiScore
from quail_frames.plan.physical import AnswerOutput, Chain, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.attention import causal_attention
from quail_frames.runtime.models.fused import FEWEST, REPAID_AFTER, Fuser, compiled_between
from quail_frames.runtime.models.load import load_model
from quail_frames.runtime.models.step import between

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


def test_layers_are_fused_only_for_long_runs(folder: Path) -> None:
    for fuse in ("auto", "never"):
        decoder = load_model(folder, dtype="float32").decoder
        Fuser(decoder, fuse).before(REPAID_AFTER // 1000)
        assert decoder.between is between


@pytest.mark.slow
@pytest.mark.parametrize(("architecture", "dtype"), [("llama", "float32"), ("qwen2", "float32"), ("qwen3", "bfloat16")])
def test_fused_layers_compute_the_same(make_tiny: Any, architecture: str, dtype: Any) -> None:
    decoder = load_model(make_tiny(architecture).folder, dtype=dtype).decoder
    plain, fused = between, compiled_between(decoder)
    assert fused is not None, "there is no C++ compiler here, or Inductor does not work with it"
    for tokens in (FEWEST - 1, FEWEST, 200):
        ids = torch.arange(tokens) % 250
        states = []
        for decoder.between in (plain, fused):
            states.append(decoder.hidden(ids, torch.arange(tokens), causal_attention()).to(torch.float32))
        tolerance = 1e-4 if dtype == "float32" else 0.1
        torch.testing.assert_close(states[1], states[0], rtol=tolerance, atol=tolerance)


@pytest.mark.slow
def test_without_a_compiler_layers_stay_as_they_are(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import torch._inductor.config as inductor

    monkeypatch.setattr(inductor.cpp, "cxx", ("/nowhere/c++",))
    monkeypatch.setattr(inductor, "force_disable_caches", True)
    decoder = load_model(folder, dtype="float32").decoder
    Fuser(decoder, "always").before(1)
    assert decoder.between is between
