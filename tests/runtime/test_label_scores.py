"""The default model's label scores are those of every label read off whole prompts."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow as pa
import pytest
import torch

from quail_frames.plan.calls import AiClassify
from quail_frames.plan.physical import AnswerOutput, Chain
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected_labels import Label, Logits, decoded_label, tree_shares
from quail_frames.runtime.loading import OpenedModel, open_model
from quail_frames.runtime.models.attention import causal_attention
from quail_frames.runtime.models.load import LoadedModel
from quail_frames.runtime.tokens.assemble import assemble

TEXTS = ["I still have not got my new card.", "Why was I charged for cash?"]
LABELS = ("card arrival", "card arrival delayed", "card not working", "cash withdrawal charge", "refund")
ENDED = tuple(label for label in LABELS if label != "card arrival")


@pytest.fixture(scope="module")
def opened() -> OpenedModel:
    return open_model("smollm2-135m", device="cpu", dtype="float32")


@pytest.mark.parametrize("layout", ["document_first", "question_first"])
def test_tries_score_like_whole_prompts(default_model: LoadedModel, opened: OpenedModel, layout: str) -> None:
    tree = classify("trie_tree", LABELS, layout=layout, probabilities=True)
    decode = classify("trie_decode", ENDED, layout=layout)
    answers = [ask(opened, kv_budget, tree, decode) for kv_budget in (0, 1 << 28)]
    for row in range(len(TEXTS)):
        prompts = answers[0][1]
        shares = tree_shares(*labels_of(default_model, LABELS), after(default_model, prompts[0][row], LABELS))
        chosen = decoded_label(label_tokens(default_model, ENDED), after(default_model, prompts[1][row], ENDED))
        for got, _ in answers:
            answer = got["tree"][row].as_py()
            np.testing.assert_allclose(list(answer["probabilities"].values()), shares, atol=1e-4)
            assert sum(answer["probabilities"].values()) == pytest.approx(1, abs=1e-6)
            assert answer["label"] == LABELS[int(np.argmax(shares))]
            assert got["decode"][row].as_py() == ENDED[chosen]


def ask(opened: OpenedModel, kv_budget: int, *calls: AiClassify) -> tuple[pa.Table, list[list[np.ndarray]]]:
    """The answers, and each call's whole prompts."""
    with Engine(opened, kv_budget=kv_budget, token_budget=200) as engine:
        planned = tuple(engine.resolve(call, (0,)) for call in calls)
        outputs = (AnswerOutput("tree", 0), AnswerOutput("decode", 1))
        batches = [pa.record_batch([pa.array(TEXTS)], names=["text"])]
        got = pa.Table.from_batches(engine.run(Chain(("text",), (), planned, (0, 1), None, outputs), batches))
        prompts = []
        for call in planned:
            prompt = engine.compile(call).prompt
            pieces = (*prompt.document, *prompt.instruction, *prompt.question)
            prompts.append(list(assemble(pieces, {0: engine.tokenizer.encode(TEXTS)}, len(TEXTS)).lists()))
        return got, prompts


def classify(scoring: str, labels: tuple[str, ...], **options: object) -> AiClassify:
    return AiClassify(Template((Slot(0),)), ("text",), labels=labels, scoring=scoring, **options)  # type: ignore[arg-type]


def label_tokens(model: LoadedModel, labels: Sequence[str]) -> list[Label]:
    return [tuple(tokens.tolist()) for tokens in model.tokenizer.encode([f" {label}" for label in labels]).lists()]


def labels_of(model: LoadedModel, labels: Sequence[str]) -> tuple[list[Label], Callable[[int], bool]]:
    """Label tokens, and whether a token begins a word."""
    return label_tokens(model, labels), lambda token: model.tokenizer.decode([token]).startswith(" ")


def after(model: LoadedModel, prompt: np.ndarray, labels: Sequence[str]) -> Logits:
    """Log-probabilities of a next token after the prompt and any start of a label, from one pass for each label."""
    found: dict[Label, np.ndarray] = {}
    for label in sorted(label_tokens(model, labels), key=len, reverse=True):
        if label in found:  # the start of another one
            continue
        tokens = torch.from_numpy(np.concatenate([prompt, np.array(label, dtype=np.int32)]))
        positions = torch.arange(len(tokens))
        hidden = model.decoder.hidden(tokens, positions, causal_attention(), positions[len(prompt) - 1 :])
        shares = model.decoder.logits(hidden).double().log_softmax(dim=1).numpy()
        found |= {label[:fed]: shares[fed] for fed in range(len(label) + 1)}
    return lambda fed, ids: found[fed][list(ids)].tolist()
