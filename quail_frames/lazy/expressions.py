"""The AI expressions: `ai_if`, `ai_score`, `ai_classify`.

Each is a real `pl.Expr`: it composes with every other Polars expression and works in any
frame. In a planned frame (`qf.lazy`) the optimizer sees the call and decides when it is asked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from quail_frames.errors import CallError
from quail_frames.lazy.calls import build_classify, build_question
from quail_frames.lazy.discovery import check_inputs_row_local
from quail_frames.lazy.marker import answer_dtype, field_names
from quail_frames.lazy.unplanned import AskDefaultEngine
from quail_frames.plan.calls import AiCall, AiIf, AiScore, Layout, Overflow, Scoring

Column = str | pl.Expr


def ai_if(
    template: str,
    *columns: Column,
    selectivity: float | None = None,
    layout: Layout = "auto",
    overflow: Overflow = "error",
) -> pl.Expr:
    """TRUE or FALSE to a question about each row.

    Parameters
    ----------
    template
        The question. `{column}` stands for a column's text, `{"odd name"}` for a column
        whose name needs quotes, `{0}` for the first of `columns`, `{{` and `}}` for braces.
    *columns
        Explicit columns, names or row-local expressions. A template without a
        placeholder is a question about the one explicit column.
    selectivity
        Estimated share of rows answered TRUE, 0..1; steers the order of questions, never answers.
    layout
        Where the document stands in the prompt; `auto` decides by the call and the model alone.
    overflow
        For prompts longer than the model's context: `error`, `null` (a null answer) or
        `truncate` (the head of the text is asked).

    Returns
    -------
    pl.Expr
        Boolean, named `<first column>_if`; null where a used column is null.

    Raises
    ------
    CallError
        The template or an option is malformed.
    PlanError
        A column expression is not row-local, or holds another call.

    Examples
    --------
    >>> import polars as pl, quail_frames as qf
    >>> expr = qf.ai_if("Does this review discuss the ending?\\n\\n{review}", selectivity=0.25)
    >>> expr.meta.output_name()
    'review_if'
    """
    names, inputs = _explicit(columns)
    call = build_question(AiIf, template, names, selectivity=selectivity, layout=layout, overflow=overflow)
    return call_expression(call, inputs)


def ai_score(
    template: str,
    *columns: Column,
    selectivity: float | None = None,
    layout: Layout = "auto",
    overflow: Overflow = "error",
) -> pl.Expr:
    """The probability that the answer is TRUE, for each row.

    Parameters, errors and nulls are those of `ai_if`.

    Returns
    -------
    pl.Expr
        Float64 in 0..1, named `<first column>_score`.

    Examples
    --------
    >>> import polars as pl, quail_frames as qf
    >>> (qf.ai_score("Is {0} spam?", pl.col("body").str.strip_chars()) > 0.8).meta.output_name()
    'body_score'
    """
    names, inputs = _explicit(columns)
    call = build_question(AiScore, template, names, selectivity=selectivity, layout=layout, overflow=overflow)
    return call_expression(call, inputs)


def ai_classify(
    input: Column,
    labels: Sequence[str],
    *,
    descriptions: Mapping[str, str] | Sequence[str | None] | None = None,
    task_description: str | None = None,
    selectivity: float | None = None,
    layout: Layout = "auto",
    scoring: Scoring = "auto",
    overflow: Overflow = "error",
    probabilities: bool = False,
) -> pl.Expr:
    """One of `labels` for each row.

    Parameters
    ----------
    input
        A column name, a row-local expression, or a template such as `"Title: {title}\\n\\n{body}"`.
    labels
        2 to 255 texts, different ignoring case.
    descriptions
        Up to 25 words a label: a dict by label, or one for each label.
    task_description
        What the labels are about, up to 50 words.
    selectivity
        Estimated share of rows that a test of the label keeps, 0..1.
    layout, overflow
        As in `ai_if`.
    scoring
        How labels are scored; `auto` decides by the call and the model alone.
    probabilities
        Give a struct {label, probabilities} instead of the label, with one Float64 a label.

    Returns
    -------
    pl.Expr
        String, or the struct, named `<first column>_label`.

    Raises
    ------
    CallError
        Labels, descriptions, template or an option are malformed.

    Examples
    --------
    >>> import quail_frames as qf
    >>> qf.ai_classify("review", ["plot", "acting", "other"]).meta.output_name()
    'review_label'
    """
    names, inputs = _explicit([input])
    call = build_classify(
        names[0],
        labels,
        explicit=bool(inputs),
        descriptions=descriptions,
        task_description=task_description,
        selectivity=selectivity,
        layout=layout,
        scoring=scoring,
        overflow=overflow,
        probabilities=probabilities,
    )
    return call_expression(call, inputs)


def call_expression(call: AiCall, inputs: Mapping[int, pl.Expr]) -> pl.Expr:
    """The call as an expression; an input without an expression is the column of its name."""
    exprs = [inputs[i] if i in inputs else _column(name) for i, name in enumerate(call.columns)]
    check_inputs_row_local(call, exprs)
    fields = [expr.alias(name) for expr, name in zip(exprs, field_names(call), strict=True)]
    answers = pl.struct(fields).map_batches(
        AskDefaultEngine(call), return_dtype=answer_dtype(call), is_elementwise=True
    )
    return answers.alias(call.output_name())


def _explicit(columns: Sequence[Column]) -> tuple[list[str], dict[int, pl.Expr]]:
    """Names of the explicit columns, and the expressions among them by position."""
    names: list[str] = []
    inputs: dict[int, pl.Expr] = {}
    for i, column in enumerate(columns):
        if isinstance(column, pl.Expr):
            if column.meta.has_multiple_outputs():
                raise CallError(f"{column} stands for several columns: write one call a column")
            inputs[i] = column
            column = column.meta.output_name(raise_if_undetermined=False) or "element"
        elif not isinstance(column, str):
            raise CallError(f"a column is a name or an expression, not {type(column).__name__}: {column!r}")
        names.append(column)
    return names, inputs


def _column(name: str) -> pl.Expr:
    if name == "*" or (name.startswith("^") and name.endswith("$")):
        raise CallError(f"column name {name!r} is a pattern to Polars: rename the column first")
    return pl.col(name)
