"""The default model through the engine gives the scores of whole prompts computed one by one."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import torch

from quail_frames.plan.calls import AiClassify, AiScore
from quail_frames.plan.physical import AnswerOutput, Chain, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.compiled import CompiledCall
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


CALLS = [PlannedCall(call, (0,), "document_first", "true_false") for call in SCORES]
CALLS.append(PlannedCall(LABEL, (0,), "document_first", "letters"))


def test_rewound_suffixes_equal_whole_prompts(default_model: LoadedModel) -> None:
    # Memory for some of the documents: the others are answered without retention.
    with Engine("smollm2-135m", dtype="float32", kv_budget=1 << 22, token_budget=256) as engine:
        compiled = [engine.compile(call) for call in CALLS]
        plan = Chain(("text",), (), tuple(CALLS), (0, 1, 2), None, tuple(AnswerOutput(str(n), n) for n in range(3)))
        got = pa.Table.from_batches(engine.run(plan, [pa.record_batch([pa.array(TEXTS)], names=["text"])]))
    expected = [whole_prompts(default_model, call) for call in compiled]
    for number in range(2):
        np.testing.assert_allclose(got[str(number)].to_numpy(), expected[number], atol=1e-4)
    assert got["2"].to_pylist() == [LABEL.labels[int(label)] for label in expected[2]]


def whole_prompts(model: LoadedModel, call: CompiledCall) -> np.ndarray:
    """The call's answers, each row's prompt run alone."""
    pieces = (*call.prompt.document, *call.prompt.instruction, *call.prompt.question)
    prompts = assemble(pieces, {0: model.tokenizer.encode(TEXTS)}, len(TEXTS))
    rows = [last_logits(model, prompts[row], call.spec.token_ids) for row in range(len(TEXTS))]
    return call.decode(np.concatenate(rows)).values


def last_logits(model: LoadedModel, tokens: np.ndarray, token_ids: np.ndarray) -> np.ndarray:
    positions = torch.arange(len(tokens))
    hidden = model.decoder.hidden(torch.from_numpy(tokens), positions, causal_attention(), positions[-1:])
    return model.decoder.logits(hidden, torch.from_numpy(token_ids.astype(np.int64))).numpy()
