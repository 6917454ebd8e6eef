"""Whole prompts of a plan's calls, joined from the engine's own pieces: what the other side is asked."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from quail_frames.plan.calls import AiClassify, AiIf
from quail_frames.plan.physical import PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.gguf_file import open_gguf
from quail_frames.runtime.models.hub import resolve
from quail_frames.runtime.tokens.assemble import assemble
from quail_frames.runtime.tokens.ragged import Int64, Ragged
from quail_frames.runtime.tokens.tokenizer import Tokenizer


def filter_call(engine: Engine, question: str, selectivity: float = 0.5) -> PlannedCall:
    """A question about the text in input column 0."""
    call = AiIf(Template((question + "\n\n", Slot(0))), ("text",), selectivity=selectivity)
    return engine.resolve(call, (0,))


def classify_call(engine: Engine, labels: tuple[str, ...], task: str | None = None) -> PlannedCall:
    """A classification of the text in input column 0, by greedy decoding of the label, as other engines do it."""
    call = AiClassify(Template((Slot(0),)), ("text",), labels=labels, task_description=task, scoring="trie_decode")
    return engine.resolve(call, (0,))


def join_call(engine: Engine, before: str, between: str, after: str, selectivity: float = 0.2) -> PlannedCall:
    """A question about an anchor (input 0) and a partner (input 1), which stand in the template in this order."""
    template = Template((before, Slot(0), between, Slot(1), after))
    return engine.resolve(AiIf(template, ("anchor", "partner"), selectivity=selectivity), (0, 1), anchors=(0,))


def token_batch(name: str, lists: Ragged) -> pa.RecordBatch:
    """Token ids as a record batch with one list<int32> column."""
    offsets = pa.array(lists.offsets.astype(np.int32))
    return pa.record_batch([pa.ListArray.from_arrays(offsets, pa.array(lists.values))], names=[name])


def row_prompts(engine: Engine, planned: PlannedCall, rows: Ragged) -> Ragged:
    """The prompt of a one-column call for every row, from its token ids."""
    prompt = engine.compile(planned).prompt
    return assemble((*prompt.document, *prompt.instruction, *prompt.question), {0: rows}, len(rows))


def pair_prompts(engine: Engine, planned: PlannedCall, anchors: Ragged, partners: Ragged) -> Ragged:
    """The prompt of every (anchor, partner) pair, anchor by anchor."""
    prompt = engine.compile(planned).prompt
    left: Int64 = np.repeat(np.arange(len(anchors)), len(partners))
    right: Int64 = np.tile(np.arange(len(partners)), len(anchors))
    values = {0: anchors.take(left), 1: partners.take(right)}
    return assemble((*prompt.document, *prompt.instruction, *prompt.question), values, len(left))


def tokenizer_of(model: str) -> Tokenizer:
    """The tokenizer of a model, without its weights."""
    path = resolve(model)
    if path.is_dir():
        return Tokenizer.from_folder(path)
    return Tokenizer.from_gguf(open_gguf(path).metadata, str(path))
