"""What several questions about one document begin with is asked once: it moves behind their common instruction.

Prompts stay the same, token by token; only where a prompt's context ends and its question begins is another.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from quail_frames.runtime.compiled import CompiledCall
from quail_frames.runtime.tokens.layouts import Input
from quail_frames.runtime.tokens.ragged import Int32


def share_starts(calls: Sequence[CompiledCall], *, alone: bool = False) -> list[CompiledCall]:
    """The calls with the longest common start of the questions that follow one instruction moved into it.

    `alone`: of a call that has its instruction for itself as well, because a later operator may ask alike.
    """
    groups: dict[tuple[str, str], list[int]] = {}
    for number, call in enumerate(calls):
        if call.prompt.document and not isinstance(call.prompt.question[0], Input):
            groups.setdefault((call.prompt.document_key, call.prompt.instruction_key), []).append(number)
    out = list(calls)
    for numbers in groups.values():
        starts = [_start(calls[number]) for number in numbers]
        count = _common(starts)
        if (alone or len(numbers) > 1) and count:
            for number, start in zip(numbers, starts, strict=True):
                out[number] = _moved(calls[number], start[:count], start[count:])
    return out


def _start(call: CompiledCall) -> Int32:
    start = call.prompt.question[0]
    assert not isinstance(start, Input)
    return start


def _common(lists: Sequence[Int32]) -> int:
    """How many leading tokens are the same in all; at least one of each is left."""
    shortest = min(len(tokens) for tokens in lists) - 1
    heads = np.stack([tokens[: max(shortest, 0)] for tokens in lists])
    differ = np.flatnonzero((heads != heads[0]).any(axis=0))
    return int(differ[0]) if len(differ) else heads.shape[1]


def _moved(call: CompiledCall, start: Int32, rest: Int32) -> CompiledCall:
    prompt = call.prompt
    instruction, question = (*prompt.instruction, start), (rest, *prompt.question[1:])
    return replace(call, prompt=replace(prompt, instruction=instruction, question=question))
