"""Turning (call, units) into ask blocks: on a resident context, on a call's shared context, or from nothing."""

from __future__ import annotations

import numpy as np

from quail_frames.runtime.batch import AskBlock
from quail_frames.runtime.compiled import CompiledCall
from quail_frames.runtime.operators.lane import Lane
from quail_frames.runtime.tokens.assemble import assemble, piece_lengths
from quail_frames.runtime.tokens.layouts import Input
from quail_frames.runtime.tokens.ragged import Int64, Ragged


def fresh_asks(lane: Lane, call: CompiledCall, units: Int64, contexts: Int64, keep: Int64) -> AskBlock:
    """The whole prompt of each unit; the first `keep` tokens stay in its context (-1: in none)."""
    prompt = call.prompt
    pieces = (*prompt.document, *prompt.instruction, *prompt.question)
    tokens = assemble(pieces, lane.values_of(units), len(units))
    return suffix_block(call, contexts, np.zeros(len(units), dtype=np.int64), tokens, keep)


def cut_asks(lane: Lane, call: CompiledCall, units: Int64, limit: int) -> AskBlock:
    """The whole prompt of each unit, with its values cut at the end to fit `limit` tokens; nothing is kept."""
    prompt = call.prompt
    pieces = (*prompt.document, *prompt.instruction, *prompt.question)
    values = cut_values(lane.values_of(units), limit - prompt.own_tokens)
    nowhere = np.full(len(units), -1, dtype=np.int64)
    zeros = np.zeros(len(units), dtype=np.int64)
    return suffix_block(call, nowhere, zeros, assemble(pieces, values, len(units)), zeros)


def suffix_asks(lane: Lane, call: CompiledCall, units: Int64, with_instruction: bool, commit: bool) -> AskBlock:
    """The question of each unit on its resident document.

    `with_instruction`: the context does not hold the call's instruction, so the ask brings
    it; `commit`: and leaves it there.
    """
    prompt = call.prompt
    pieces = (*prompt.instruction, *prompt.question) if with_instruction else prompt.question
    own = any(isinstance(piece, Input) for piece in pieces)
    tokens = assemble(pieces, lane.values_of(units) if own else {}, len(units))
    instruction = int(piece_lengths(prompt.instruction, {}, 1)[0])
    prefix = lane.document_tokens.data[units] + (0 if with_instruction else instruction)
    keep = np.full(len(units), instruction if commit else 0, dtype=np.int64)
    return suffix_block(call, lane.context.data[units], prefix, tokens, keep)


def shared_asks(lane: Lane, call: CompiledCall, units: Int64, context: int, prefix: int) -> AskBlock:
    """The rest of the prompt of each unit on one context that holds the call's own words."""
    tokens = assemble(call.prompt.question, lane.values_of(units), len(units))
    contexts = np.full(len(units), context, dtype=np.int64)
    zeros = np.zeros(len(units), dtype=np.int64)
    return suffix_block(call, contexts, zeros + prefix, tokens, zeros)


def context_block(context: int, tokens: Ragged) -> AskBlock:
    """Fill one context with tokens; nothing is read."""
    zero = np.zeros(1, dtype=np.int64)
    return AskBlock(np.array([context], dtype=np.int32), zero, tokens, tokens.lengths)


def cut_values(values: dict[int, Ragged], limit: int) -> dict[int, Ragged]:
    """Keep the heads of the values so that each row's together are at most `limit` tokens.

    The longest value of a row is cut first, down to the next longest, and so on.
    """
    columns = list(values)
    lengths = np.stack([values[column].lengths for column in columns], axis=1)
    cap = _water_level(lengths, max(limit, 0))
    kept = np.minimum(lengths, cap[:, None])
    return {column: values[column].heads(kept[:, number]) for number, column in enumerate(columns)}


def _water_level(lengths: Int64, limit: int) -> Int64:
    """Per row, the highest cap with sum(min(lengths, cap)) <= limit."""
    low, high = np.zeros(len(lengths), dtype=np.int64), lengths.max(axis=1)
    while (low < high).any():
        middle = (low + high + 1) // 2
        fits = np.minimum(lengths, middle[:, None]).sum(axis=1) <= limit
        low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
    return low


def suffix_block(call: CompiledCall, contexts: Int64, prefix: Int64, tokens: Ragged, keep: Int64) -> AskBlock:
    """Asks that read their last token."""
    return AskBlock(contexts.astype(np.int32), prefix, tokens, keep, reads=(-1,), readout=call.spec)
