"""What the oracle model answers, worked out from one row's whole prompt: no engine, no memory, no batches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from quail_frames.plan.calls import AiClassify, AiIf
from quail_frames.plan.physical import PlannedCall
from quail_frames.runtime.compiled import CompiledCall, ModelTraits, compile_call
from quail_frames.runtime.oracle import logits_of, state_of
from quail_frames.runtime.tokens.assemble import assemble
from quail_frames.runtime.tokens.oracle_tokenizer import OracleTokenizer


def expected_answer(planned: PlannedCall, values: Sequence[str | None]) -> bool | float | str | None:
    """The oracle's answer for the operator's input columns `values` of one row; None where a used one is null."""
    used = [values[number] for number in planned.inputs]
    if any(value is None for value in used):
        return None
    call = _compiled(planned)
    prompt = call.prompt
    lists = {number: OracleTokenizer().encode([text]) for number, text in enumerate(values) if text is not None}
    tokens = assemble((*prompt.document, *prompt.instruction, *prompt.question), lists, 1)
    answer = call.decode(logits_of(state_of(tokens.values), call.spec.token_ids)).values[0]
    if isinstance(planned.call, AiClassify):
        return planned.call.labels[int(answer)]
    return bool(answer) if isinstance(planned.call, AiIf) else float(answer)


@lru_cache(maxsize=256)
def _compiled(planned: PlannedCall) -> CompiledCall:
    return compile_call(planned, OracleTokenizer(), ModelTraits())
