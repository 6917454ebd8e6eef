"""The default model through the engine gives the scores of whole prompts computed one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
import torch

from quail_frames.plan.calls import AiClassify, AiScore
from quail_frames.plan.physical import AnswerOutput, Chain
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.attention import causal_attention
from quail_frames.runtime.models.load import LoadedModel
from quail_frames.runtime.tokens.assemble import assemble

TEXTS = [
    "I still have not got my new card.",
    "How do I top up with Google Pay? It keeps failing, and I have tried three times since this morning.",
    "",
    "Why was I charged a fee for a cash withdrawal? " * 3,
]
SCORES = [AiScore(Template((f"{text} ", Slot(0))), ("text",)) for text in ("Is it about a card?", "Is it urgent?")]
LABEL = AiClassify(Template((Slot(0),)), ("text",), labels=("card", "top-up", "fee"), scoring="letters")


@pytest.fixture(scope="module")
def expected(default_model: LoadedModel) -> list[list[object]]:
    """Each call's answers, from every whole prompt run alone; any engine compiles the same prompts."""
    with Engine("smollm2-135m", dtype="float32", kv_budget=0) as engine:
        compiled = [engine.compile(engine.resolve(call, (0,))) for call in (*SCORES, LABEL)]
        texts = engine.tokenizer.encode(TEXTS)
    answers = []
    for call in compiled:
        pieces = (*call.prompt.document, *call.prompt.instruction, *call.prompt.question)
        prompts = assemble(pieces, {0: texts}, len(TEXTS))
        rows = [last_logits(default_model, prompts[row], call.spec.token_ids) for row in range(len(TEXTS))]
        answers.append(call.decode(np.concatenate(rows)).values.tolist())
    return answers


@pytest.mark.parametrize("kv_budget", [1 << 22, 1 << 28])
def test_rewound_suffixes_equal_whole_prompts(expected: list[list[object]], kv_budget: int) -> None:
    with Engine("smollm2-135m", dtype="float32", kv_budget=kv_budget, token_budget=256) as engine:
        planned = tuple(engine.resolve(call, (0,)) for call in (*SCORES, LABEL))
        outputs = tuple(AnswerOutput(str(number), number) for number in range(3))
        plan = Chain(("text",), (), planned, (0, 1, 2), None, outputs)
        got = pa.Table.from_batches(engine.run(plan, [pa.record_batch([pa.array(TEXTS)], names=["text"])]))
    for number in range(2):
        np.testing.assert_allclose(got[str(number)].to_numpy(), expected[number], atol=1e-4)
    assert got["2"].to_pylist() == [LABEL.labels[label] for label in expected[2]]


def last_logits(model: LoadedModel, tokens: np.ndarray, token_ids: np.ndarray) -> np.ndarray:
    positions = torch.arange(len(tokens))
    hidden = model.decoder.hidden(torch.from_numpy(tokens), positions, causal_attention(), positions[-1:])
    return model.decoder.logits(hidden, torch.from_numpy(token_ids.astype(np.int64))).numpy()
