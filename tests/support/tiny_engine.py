"""Tiny random models with a word tokenizer, and a workload of every operator, for comparing two ways to run a model."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoConfig, AutoModelForCausalLM

from quail_frames.plan.calls import AiClassify, AiIf, AiScore
from quail_frames.plan.conditions import And, Answer
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.report import RunReport
from tests.support.fp8 import convert_to_fp8

SHAPE: dict[str, Any] = {
    "hidden_size": 160,
    "intermediate_size": 256,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 64,
    "max_position_embeddings": 512,
    "pad_token_id": None,
}
WORDS = r" ?[^\s]+|\s"
OPENING = "a parcel came late and the box was wet so we sent it back with a note to them at once"
TEXTS = [f"{OPENING} red", f"{OPENING} blue hat", "red hat", "no hat was red", "red hat"]
TERMS = ["red", "blue hat", "late"]
LABELS = ("red hat", "red box", "blue")
QUESTIONS = ("Is it red?", "Is it late?", "Was it wet?")
ANSWERS = ["TRUE", "FALSE", "True", "False", *"ABC", *LABELS]


def save_model(folder: Path, architecture: str = "qwen3", fp8: bool = False, **options: Any) -> Path:
    """A random model and its tokenizer in `folder`; norms near one, so that answers tell texts apart."""
    tokenizer = word_tokenizer()
    torch.manual_seed(7)
    sizes = {**SHAPE, "vocab_size": tokenizer.get_vocab_size(), **options}
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(architecture, **sizes)).to(torch.float32)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=0.8 if parameter.ndim == 1 else 0.0, std=0.1)
    model.save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"))
    if fp8:
        convert_to_fp8(folder)
    return folder


def word_tokenizer() -> Tokenizer:
    """A token for each word of this workload with and without a space before it; other words are one token."""
    words = re.findall(WORDS, " ".join([*TEXTS, *TERMS, *QUESTIONS, *ANSWERS, "ANSWER: DOCUMENT:"]))
    known = ["<unk>", "\n", " ", *dict.fromkeys(form for word in words for form in (word.strip(), f" {word.strip()}"))]
    tokenizer = Tokenizer(models.WordLevel({word: number for number, word in enumerate(known)}, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split(Regex(WORDS), "isolated")
    tokenizer.decoder = decoders.Fuse()
    return tokenizer


def one_column(call: Any, scoring: str = "true_false") -> PlannedCall:
    return PlannedCall(call, (0,), "document_first", scoring)  # type: ignore[arg-type]


def about(text: str) -> Template:
    return Template((f"{text} ", Slot(0)))


def classification(scoring: str, probabilities: bool) -> PlannedCall:
    call = AiClassify(about("What?"), ("t",), labels=LABELS, scoring=scoring, probabilities=probabilities)  # type: ignore[arg-type]
    return one_column(call, scoring)


def chains() -> Iterator[tuple[str, Chain]]:
    """A chain of filters with scores, and classifications by each method."""
    filters = [one_column(AiIf(about(question), ("t",))) for question in QUESTIONS]
    scores = [one_column(AiScore(about(question), ("t",))) for question in QUESTIONS[:2]]
    keep = And((Answer(0), Answer(1), Answer(2)))
    yield "filters", Chain(("t",), (), tuple(filters), (2, 0, 1), keep, (AnswerOutput("a", 0), AnswerOutput("b", 2)))
    yield "scores", Chain(("t",), (), tuple(scores), (0, 1), None, (AnswerOutput("a", 0), AnswerOutput("b", 1)))
    methods = [("letters", True), ("trie_decode", False), ("trie_tree", True)]
    calls = tuple(classification(*method) for method in methods)
    outputs = tuple(AnswerOutput(scoring, number) for number, (scoring, _) in enumerate(methods))
    yield "labels", Chain(("t",), (), calls, (0, 1, 2), None, outputs)


PARTS = ("filters", "scores", "labels", "inner join", "semi join")
STOPS = {"inner join": "never", "semi join": "first_true"}


def answers(
    engine: Engine,
    report: RunReport | None = None,
    parts: Sequence[str] = PARTS,
    texts: Sequence[str] = TEXTS,
    terms: Sequence[str] = TERMS,
) -> dict[str, list[dict[str, Any]]]:
    """What the engine answers to these parts of the workload."""
    report = RunReport() if report is None else report
    rows = pa.record_batch([pa.array(texts)], names=["t"])
    found = {name: _rows(engine.run(chain, [rows], report)) for name, chain in chains() if name in parts}
    match = engine.resolve(AiIf(Template(("Is ", Slot(0), " of ", Slot(1), "?")), ("t", "p")), (0, 1), anchors=(0,))
    partners = pa.record_batch([pa.array(terms)], names=["p"])
    for name in STOPS.keys() & set(parts):
        plan = PairJoin(("t",), ("p",), match, stop=STOPS[name])  # type: ignore[arg-type]
        found[name] = _rows(engine.join(plan, [AnchorBatch(rows, None)], partners, report))
    engine.end(report)
    assert engine.memory.contexts.pool.free == engine.memory.pages, "a query leaves no page behind"
    return found


def _rows(batches: Iterator[pa.RecordBatch]) -> list[dict[str, Any]]:
    return [row for batch in batches for row in batch.to_pylist()]


def assert_same_answers(found: dict[str, Any], wanted: dict[str, Any], tolerance: float) -> None:
    """Equal rows, labels and truths; scores and probabilities within `tolerance`."""
    assert _without_numbers(found) == _without_numbers(wanted)
    np.testing.assert_allclose(_numbers(found), _numbers(wanted), atol=tolerance, rtol=0)


def _without_numbers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [_without_numbers(part) for part in value]
    return None if isinstance(value, float) else value


def _numbers(value: Any) -> list[float]:
    if isinstance(value, dict):
        return [number for part in value.values() for number in _numbers(part)]
    if isinstance(value, list):
        return [number for part in value for number in _numbers(part)]
    return [value] if isinstance(value, float) else []
