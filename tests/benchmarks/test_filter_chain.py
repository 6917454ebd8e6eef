"""The filter chain's harness on a tiny random model: both sides are asked the same, and count what they compute."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from benchmarks import data
from benchmarks.filter_chain import QUESTIONS, measure
from benchmarks.prompts import filter_call, row_prompts
from benchmarks.transformers_loop import TransformersLoop
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.config import config_from_huggingface
from quail_frames.runtime.models.export import huggingface_config, huggingface_folder
from quail_frames.runtime.models.safetensors import read_json
from quail_frames.runtime.tokens.oracle_tokenizer import OracleTokenizer


def test_both_sides_give_the_same_answers_and_count_their_tokens(tiny: Path) -> None:
    with Engine(str(tiny), dtype="float32") as engine:
        loop = TransformersLoop(huggingface_folder(str(tiny)), "float32")
        rows = engine.tokenizer.encode(["short", "a review of some length, with words in it", "", "the end"])
        result = measure(engine, loop, rows, chunks=2)
        whole = [row_prompts(engine, filter_call(engine, question), rows) for question in QUESTIONS]
    assert result.widest_difference < 1e-3
    assert result.loop.tokens == sum(len(prompts.values) for prompts in whole)
    assert result.ours.tokens < result.loop.tokens
    assert result.ratio_tokens == pytest.approx(result.loop.tokens / result.ours.tokens)


def test_an_exported_config_describes_the_same_model(tiny: Path) -> None:
    config = config_from_huggingface(read_json(tiny / "config.json"), "tiny")
    assert config_from_huggingface(huggingface_config(config), "exported") == config


def test_texts_are_cut_at_lines_into_parts_of_about_the_length_asked() -> None:
    text = "\n".join("x" * length for length in (30, 40, 20, 50, 60))
    parts = data.cut_to([text, text], 75, OracleTokenizer())
    assert [len(part) for part in parts] == [71, 71, 71, 71]
    assert parts[0] == parts[1] == "x" * 30 + "\n" + "x" * 40


def test_heads_of_lists_are_their_first_tokens() -> None:
    lists = OracleTokenizer().encode(["abcdef", "ab", ""])
    assert data.heads(lists, 3).lengths.tolist() == [3, 2, 0]
    assert np.array_equal(data.heads(lists, 3)[0], lists[0][:3])
