"""Turning (call, units) into ask blocks: on a resident context, on a call's shared context, or from nothing."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from quail_frames.runtime.batch import AskBlock, Int32
from quail_frames.runtime.compiled import CompiledCall
from quail_frames.runtime.operators.lane import Lane
from quail_frames.runtime.tokens.assemble import assemble
from quail_frames.runtime.tokens.layouts import Input, Piece
from quail_frames.runtime.tokens.ragged import Int64, Ragged, offsets_of, ranges

ANSWER = Input(-1)
"""Place of the tokens that a read-out feeds after the cue."""


def fresh_asks(lane: Lane, call: CompiledCall, units: Int64, steps: Int64, contexts: Int64, keep: Int64) -> AskBlock:
    """The whole prompt of each unit; the first `keep` tokens stay in its context (-1: in none)."""
    prompt = call.prompt
    pieces = (*prompt.document, *prompt.instruction, *prompt.question)
    tokens = ask_tokens(call, pieces, lane.values_of(units), steps)
    return suffix_block(call, contexts, np.zeros(len(units), dtype=np.int64), tokens, keep)


def cut_asks(lane: Lane, call: CompiledCall, units: Int64, steps: Int64, limit: int) -> AskBlock:
    """The whole prompt of each unit, its values cut at the end to leave room for any answer; nothing is kept."""
    prompt = call.prompt
    pieces = (*prompt.document, *prompt.instruction, *prompt.question)
    values = cut_values(lane.values_of(units), limit - call.positions)
    nowhere = np.full(len(units), -1, dtype=np.int64)
    zeros = np.zeros(len(units), dtype=np.int64)
    return suffix_block(call, nowhere, zeros, ask_tokens(call, pieces, values, steps), zeros)


def suffix_tokens(lane: Lane, call: CompiledCall, units: Int64, steps: Int64, with_instruction: bool) -> Ragged:
    """The question of each unit, behind the instruction where its context does not hold it."""
    prompt = call.prompt
    pieces = (*prompt.instruction, *prompt.question) if with_instruction else prompt.question
    own = any(isinstance(piece, Input) for piece in pieces)
    return ask_tokens(call, pieces, lane.values_of(units) if own else {}, steps)


def shared_asks(
    lane: Lane, call: CompiledCall, units: Int64, steps: Int64, context: int, prefix: int, forks: Int32
) -> AskBlock:
    """The rest of the prompt of each unit on one context that holds the call's own words; kept in `forks` (-1: not)."""
    tokens = ask_tokens(call, call.prompt.question, lane.values_of(units), steps)
    contexts = np.full(len(units), context, dtype=np.int64)
    keep = np.where(forks >= 0, tokens.lengths, 0)
    block = suffix_block(call, contexts, np.zeros(len(units), dtype=np.int64) + prefix, tokens, keep)
    return replace(block, into=forks)


def following_asks(
    call: CompiledCall, contexts: Int32, fed: Int64, steps: Int64, after: Int64, keep: Int64
) -> AskBlock:
    """What the next step feeds, on contexts that hold the prompt and the first `after` tokens of its answer."""
    tails = call.readout.tails
    starts, lengths = tails.offsets[steps] + after, tails.lengths[steps] - after
    tokens = Ragged(tails.values[ranges(starts, lengths)], offsets_of(lengths))
    return suffix_block(call, contexts, fed, tokens, keep)


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


def ask_tokens(call: CompiledCall, pieces: Sequence[Piece], values: dict[int, Ragged], steps: Int64) -> Ragged:
    """The pieces joined, and behind them what the read-out feeds at the rows' steps."""
    tails = call.readout.tails
    if not len(tails.values):
        return assemble(pieces, values, len(steps))
    return assemble((*pieces, ANSWER), values | {ANSWER.column: tails.take(steps)}, len(steps))


def suffix_block(call: CompiledCall, contexts: Int64 | Int32, prefix: Int64, tokens: Ragged, keep: Int64) -> AskBlock:
    """Asks read as the call's read-out says."""
    readout = call.readout
    return AskBlock(contexts.astype(np.int32), prefix, tokens, keep, readout.reads, readout.spec, readout.tree)
