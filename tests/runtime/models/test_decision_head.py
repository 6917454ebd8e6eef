"""The decision head's arithmetic, the folder it is read from, and its decisions through the engine."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file

from quail_frames.errors import CallError, ModelError
from quail_frames.plan.calls import AiClassify, AiIf, AiScore
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.decision_head import PREFIX, DecisionHead, sizes
from quail_frames.runtime.models.load import DECISION_OPTIONS, LoadedModel, load_model
from quail_frames.runtime.operators.candidates import AnchorBatch

WIDTH, HIDDEN = 8, 48
Float64 = npt.NDArray[np.float64]


def random_head(width: int, hidden: int, scale: float = 0.3) -> dict[str, torch.Tensor]:
    generator = torch.Generator().manual_seed(3)
    return {
        PREFIX + part: scale * torch.randn(size, generator=generator) for part, size in sizes(width, hidden).items()
    }


def by_definition(tensors: dict[str, torch.Tensor], final: Float64, option: Float64) -> float:
    """One option's logit in float64, element by element where the formula has a sum."""
    query, key, inner, bias, outer, last = (tensors[PREFIX + part].double().numpy() for part in sizes(1, 1))
    matched = sum(float(query[i] @ final) * float(key[i] @ option) for i in range(len(query))) / math.sqrt(len(query))
    both = np.concatenate([final, option])
    units = [float(inner[i] @ both + bias[i]) for i in range(len(inner))]
    return (
        matched
        + sum(float(o) * x * (1 + math.erf(x / math.sqrt(2))) / 2 for o, x in zip(outer, units, strict=True))
        + float(last)
    )


@pytest.mark.parametrize(("width", "hidden"), [(128, 576), (256, 1024)])
def test_logits_are_the_bilinear_term_and_the_perceptron(width: int, hidden: int) -> None:
    tensors = random_head(width, hidden, scale=0.05)
    head = DecisionHead.of(tensors, hidden, "here")
    random = np.random.default_rng(0)
    final, options = random.normal(size=(2, hidden)), random.normal(size=(2, 3, hidden))
    got = head.logits(torch.from_numpy(final), torch.from_numpy(options))
    assert got.dtype == torch.float32 and head.width == width
    expected = [[by_definition(tensors, final[ask], option) for option in options[ask]] for ask in range(2)]
    np.testing.assert_allclose(got.numpy(), expected, rtol=1e-4, atol=1e-4)


def test_a_head_of_another_model_is_named() -> None:
    tensors = random_head(WIDTH, HIDDEN)
    with pytest.raises(ModelError, match=r"'decision_head.query' of here has the shape \(8, 48\).* needs \(8, 64\)"):
        DecisionHead.of(tensors, 64, "here")
    del tensors[PREFIX + "mlp_out"]
    with pytest.raises(ModelError, match=r"here lacks the tensor 'decision_head.mlp_out'"):
        DecisionHead.of(tensors, HIDDEN, "here")


@pytest.fixture
def folder(make_tiny: Any) -> Path:
    """A tiny random model with a random decision head."""
    place: Path = make_tiny("qwen3", head_dim=8).folder
    save_file(load_file(place / "model.safetensors") | random_head(WIDTH, HIDDEN), place / "model.safetensors")
    return place


TEXTS = ["a cat", "two dogs bark at night, and one of them is very old and tired", "", "a fish"]
LABELS = ("cat", "a dog or several", "fish")


@pytest.mark.parametrize("attention", ["tree", "unified"])
@pytest.mark.parametrize("layout", ["document_first", "question_first"])
def test_decisions_through_the_engine_are_those_of_whole_prompts(folder: Path, attention: Any, layout: Any) -> None:
    call = AiClassify(
        Template(("Which animal?", Slot(0))),
        ("text",),
        layout=layout,
        labels=LABELS,
        scoring="decision_choice",
        probabilities=True,
    )
    model = load_model(folder, dtype="float32")
    assert model.head is not None
    for kv_budget, token_budget in ((0, 100), (1 << 22, 4096)):
        with Engine(
            str(folder), dtype="float32", attention=attention, kv_budget=kv_budget, token_budget=token_budget
        ) as engine:
            planned = engine.resolve(call, (0,))
            plan = Chain(("text",), (), (planned, planned), (0, 1), None, (AnswerOutput("animal", 1),))
            got = pa.Table.from_batches(engine.run(plan, [pa.record_batch([pa.array(TEXTS)], names=["text"])]))
            starts = [prompt_of(engine, planned, text) for text in TEXTS]
        for start, answer in zip(starts, got["animal"].to_pylist(), strict=True):
            shares = whole_prompt_shares(model, start)
            np.testing.assert_allclose(list(answer["probabilities"].values()), shares, atol=1e-4)
            assert answer["label"] == LABELS[int(np.argmax(shares))]


def prompt_of(engine: Engine, planned: Any, text: str) -> list[int]:
    prompt = engine.compile(planned).prompt
    pieces = (*prompt.document, *prompt.instruction, *prompt.question)
    own = engine.tokenizer.encode([text]).values
    return [int(token) for piece in pieces for token in (piece if isinstance(piece, np.ndarray) else own)]


def whole_prompt_shares(model: LoadedModel, start: list[int]) -> Float64:
    """Every block behind the prompt, the cue behind all of them: masks and positions written out pair by pair."""
    blocks = [model.tokenizer.encode([f"\n- {label}"]).values.tolist() for label in LABELS]
    cue = model.tokenizer.encode(["\nANSWER:"]).values.tolist()
    tokens, positions, owners = list(start), list(range(len(start))), [-1] * len(start)
    for number, block in enumerate(blocks):
        tokens += block
        positions += range(len(start), len(start) + len(block))
        owners += [number] * len(block)
    behind = len(start) + max(map(len, blocks))
    tokens, positions = tokens + cue, positions + list(range(behind, behind + len(cue)))
    owners += [len(blocks)] * len(cue)
    size = len(tokens)
    sees = [
        [j <= i and (owners[j] in (-1, owners[i]) or owners[i] == len(blocks)) for j in range(size)]
        for i in range(size)
    ]
    mask = torch.tensor(sees)

    def attend(layer: int, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        k, v = (x.repeat_interleave(q.shape[1] // k.shape[1], dim=1) for x in (k, v))
        parts = (x.transpose(0, 1) for x in (q, k, v))
        return torch.nn.functional.scaled_dot_product_attention(*parts, attn_mask=mask).transpose(0, 1)

    hidden = model.decoder.hidden(torch.tensor(tokens), torch.tensor(positions), attend)
    ends = [max(i for i in range(size) if owners[i] == number) for number in range(len(blocks))]
    assert model.head is not None
    logits = model.head.logits(hidden[-1:], hidden[ends][None]).double()
    shares: Float64 = logits[0].softmax(dim=0).numpy()
    return shares


def test_a_folder_says_how_its_options_were_trained(folder: Path) -> None:
    plain = load_model(folder)
    (folder / DECISION_OPTIONS).write_text(json.dumps({"masked_options": False, "blocks": "json"}))
    with Engine(str(folder)) as engine:
        assert engine.traits.decision is not None and engine.traits.decision.width == WIDTH
        assert (engine.traits.decision.masked, engine.traits.decision.blocks) == (False, "json")
    assert load_model(folder).identity != plain.identity
    (folder / DECISION_OPTIONS).write_text(json.dumps({"mask": 1}))
    with pytest.raises(ModelError, match="names 'mask', which is no field"):
        load_model(folder)


@pytest.mark.parametrize("blocks", ["json", "lines"])
def test_questions_are_choices_of_false_and_true_where_the_model_was_trained_so(folder: Path, blocks: str) -> None:
    options = {"masked_options": blocks == "lines", "blocks": blocks, "head_questions": True, "bias": 0.5}
    (folder / DECISION_OPTIONS).write_text(json.dumps(options))
    question = Template(("Is ", Slot(0), " a ", Slot(1), "?"))
    call, score = AiIf(question, ("text", "other")), AiScore(question, ("text", "other"))
    texts, others = [text for text in TEXTS if text], ["pet", "wild animal"]
    with Engine(str(folder), dtype="float32", token_budget=200) as engine:
        plan = PairJoin(("text",), ("other",), engine.resolve(call, (0, 1), anchors=(0,)))
        assert plan.call.scoring == "decision_choice"
        anchors = [AnchorBatch(pa.record_batch([pa.array(texts)], names=["text"]))]
        partners = pa.record_batch([pa.array(others)], names=["other"])
        joined = [tuple(row.values()) for out in engine.join(plan, anchors, partners) for row in out.to_pylist()]
        pairs = pa.record_batch({"text": np.repeat(texts, 2).tolist(), "other": others * len(texts)})
        scored = engine.resolve(score, (0, 1), anchors=(0,))
        chain = Chain(("text", "other"), (), (scored,), (0,), None, (AnswerOutput("score", 0),))
        scores = pa.Table.from_batches(engine.run(chain, [pairs]))["score"].to_numpy()
    expected = [(number // 2, number % 2) for number in np.flatnonzero(scores > 0.5).tolist()]
    assert joined == expected
    assert len(set(scores.tolist())) == len(scores)


def test_a_model_without_a_head_refuses_decisions(make_tiny: Any) -> None:
    call = AiClassify(Template((Slot(0),)), ("text",), labels=LABELS, scoring="decision_choice")
    with (
        Engine(str(make_tiny("llama").folder)) as engine,
        pytest.raises(CallError, match="needs a model with a decision"),
    ):
        engine.resolve(call, (0,))
