"""What the oracle model answers, worked out from one row's whole prompt: no engine, no memory, no batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from quail_frames.plan.calls import AiClassify, AiIf
from quail_frames.plan.physical import PlannedCall
from quail_frames.runtime.compiled import CompiledCall, DecisionFormat, ModelTraits, compile_call
from quail_frames.runtime.expected_labels import decoded_label, tree_shares
from quail_frames.runtime.marks import UInt64, token_marks
from quail_frames.runtime.oracle import logits_of, option_logits_of, state_of, with_normalizer
from quail_frames.runtime.tokens.assemble import assemble
from quail_frames.runtime.tokens.layouts import CUE, option_lines
from quail_frames.runtime.tokens.oracle_tokenizer import AFTER_SPACE, SPACE, OracleTokenizer
from quail_frames.runtime.tokens.ragged import Int32


def expected_answer(
    planned: PlannedCall, values: Sequence[str | None]
) -> bool | float | str | dict[str, object] | None:
    """The oracle's answer for the operator's input columns `values` of one row; None where a used one is null."""
    used = [values[number] for number in planned.inputs]
    if any(value is None for value in used):
        return None
    call = _compiled(planned)
    prompt = call.prompt
    lists = {number: OracleTokenizer().encode([text]) for number, text in enumerate(values) if text is not None}
    tokens = assemble((*prompt.document, *prompt.instruction, *prompt.question), lists, 1)
    if isinstance(planned.call, AiClassify):
        return _label(planned, planned.call, call, tokens.values)
    answer = call.decode(logits_of(state_of(tokens.values), call.spec.token_ids)).values[0]
    return bool(answer) if isinstance(planned.call, AiIf) else float(answer)


def _label(planned: PlannedCall, spec: AiClassify, call: CompiledCall, prompt: Int32) -> str | dict[str, object]:
    """The label, or with probabilities {label, probabilities}."""
    if planned.scoring == "trie_decode":
        labels = _label_tokens(spec)
        return spec.labels[decoded_label(labels, lambda fed, ids: _logits(prompt, fed, ids)[:-1])]
    if planned.scoring == "trie_tree":
        labels = _label_tokens(spec)
        shares = tree_shares(
            labels, lambda token: token in _WORD_STARTS, lambda fed, ids: _log_shares(prompt, fed, ids)
        )
    elif planned.scoring == "decision_choice":
        shares = _decision_shares(prompt, option_lines(spec))
    else:
        answers = call.decode(logits_of(state_of(prompt), call.spec.token_ids))
        if answers.probabilities is None:
            return spec.labels[int(answers.values[0])]
        shares = tuple(answers.probabilities[0].tolist())
    best = spec.labels[shares.index(max(shares))]
    if not spec.probabilities:
        return best
    return {"label": best, "probabilities": dict(zip(spec.labels, shares, strict=True))}


def _decision_shares(prompt: Int32, blocks: Sequence[str]) -> tuple[float, ...]:
    """Softmax over the options: each block alone behind the prompt, and the cue behind the longest that sees them all.

    The oracle's state is a sum of marks, one for each visible token at its position.
    """
    lists = [OracleTokenizer().encode([block]).values for block in blocks]
    cue, start = OracleTokenizer().encode([CUE]).values, len(prompt)
    behind = start + max(map(len, lists))
    seen = state_of(prompt) + sum(_marks(tokens, start) for tokens in lists) + _marks(cue, behind)
    states = [state_of(prompt) + _marks(tokens, start) for tokens in lists]
    logits = option_logits_of(np.concatenate([*states, seen])[None])[0].astype(np.float64)
    weights = np.exp(logits - logits.max())
    return tuple((weights / weights.sum()).tolist())


def _marks(tokens: Int32, start: int) -> UInt64:
    return token_marks(tokens, start + np.arange(len(tokens), dtype=np.int32)).sum(dtype=np.uint64, keepdims=True)


_WORD_STARTS = frozenset((SPACE, *range(AFTER_SPACE, 2 * AFTER_SPACE)))


def _label_tokens(spec: AiClassify) -> list[tuple[int, ...]]:
    return [tuple(OracleTokenizer().encode([f" {label}"])[0].tolist()) for label in spec.labels]


def _logits(prompt: Int32, fed: Sequence[int], ids: Sequence[int]) -> list[float]:
    """Logits of the ids after the prompt and the tokens fed, and the log-sum-exp over the vocabulary."""
    state = state_of(np.concatenate([prompt, np.array(fed, dtype=np.int32)]))
    row: list[float] = with_normalizer(logits_of(state, np.array(ids, dtype=np.int32)), state)[0].tolist()
    return row


def _log_shares(prompt: Int32, fed: Sequence[int], ids: Sequence[int]) -> list[float]:
    *values, everything = _logits(prompt, fed, ids)
    return [value - everything for value in values]


@lru_cache(maxsize=256)
def _compiled(planned: PlannedCall) -> CompiledCall:
    return compile_call(planned, OracleTokenizer(), ModelTraits(decision=DecisionFormat()))
