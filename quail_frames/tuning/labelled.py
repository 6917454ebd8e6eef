"""From a frame with known answers to the texts of a call and its right answers."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import polars as pl

from quail_frames.errors import CallError, ColumnError
from quail_frames.lazy.calls import nearest
from quail_frames.lazy.discovery import FoundCall, substitute_calls
from quail_frames.lazy.expressions import ai_if
from quail_frames.lazy.inputs import as_text, check_columns, check_dtype
from quail_frames.plan.calls import AiCall, AiClassify


@dataclass(frozen=True)
class LabelledRow:
    """Texts of a call's inputs, and the right answer: 1 or 0 for TRUE or FALSE, or the number of a label."""

    texts: tuple[str, ...]
    target: float

    @property
    def share(self) -> float:
        """A number in 0..1 that depends on the texts alone, so that equal rows fall on one side of a split."""
        digest = hashlib.blake2b("\0".join(self.texts).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "big") / 2**64


def labelled_rows(
    frame: pl.DataFrame | pl.LazyFrame, question: str | pl.Expr, truth: str
) -> tuple[AiCall, list[LabelledRow]]:
    """The call, and the frame's rows in which its columns and `truth` are not null.

    Raises
    ------
    CallError
        `question` is neither a prompt nor one AI expression.
    ColumnError
        A column is missing, or the answers are not what the call can answer.
    """
    found = the_call(question)
    schema = frame.lazy().collect_schema()
    check_columns(found.call, found.reads, schema)
    if truth not in schema:
        raise ColumnError(f"truth={truth!r} is no column of the frame{nearest(truth, schema.names())}")
    names = [f"input {number}" for number in range(len(found.inputs))]
    columns = [as_text(expr).alias(name) for expr, name in zip(found.inputs, names, strict=True)]
    data = frame.lazy().select(*columns, pl.col(truth).alias("truth")).drop_nulls().collect()
    for name, expr in zip(found.call.columns, found.inputs, strict=True):
        check_dtype(found.call, name, frame.lazy().select(expr).collect_schema().dtypes()[0])
    targets = _targets(found.call, truth, data["truth"])
    rows = [LabelledRow(texts, target) for texts, target in zip(data.select(names).rows(), targets, strict=True)]
    return found.call, rows


def the_call(question: str | pl.Expr) -> FoundCall:
    """The one call that a prompt or an AI expression asks."""
    expr = ai_if(question) if isinstance(question, str) else question
    if not isinstance(expr, pl.Expr):
        raise CallError(
            f"finetune takes a prompt or an AI expression, not {type(question).__name__}: write "
            "'Is it spam?\\n\\n{body}' or qf.ai_classify('body', [...])"
        )
    rest, found = substitute_calls(expr)
    if len(found) != 1 or not rest.meta.undo_aliases().meta.eq(pl.col(found[0].column)):
        raise CallError(
            f"finetune trains one question, and the expression asks {len(found)} or computes with its answer: "
            "give qf.ai_if(...), qf.ai_score(...) or qf.ai_classify(...) alone"
        )
    return found[0]


def _targets(call: AiCall, truth: str, answers: pl.Series) -> list[float]:
    if not isinstance(call, AiClassify):
        if answers.dtype != pl.Boolean:
            raise ColumnError(
                f"column {truth!r} holds {answers.dtype}, and {call.kind} is answered with TRUE or FALSE: make it "
                "Boolean, for example with pl.col(...) == 'yes'"
            )
        return [float(answer) for answer in answers]
    numbers = {label: float(number) for number, label in enumerate(call.labels)}
    values = answers.cast(pl.String).to_list()
    unknown = next((value for value in values if value not in numbers), None)
    if unknown is not None:
        raise ColumnError(f"column {truth!r} holds {unknown!r}, which is no label{nearest(unknown, call.labels)}")
    return [numbers[value] for value in values]
