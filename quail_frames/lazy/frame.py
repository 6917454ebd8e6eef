"""The planned lazy frame: records the user's steps; `Running` and `Looking` do something with them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, Self

import polars as pl

from quail_frames.errors import PlanError
from quail_frames.lazy.checks import checked_engine, checked_frame
from quail_frames.lazy.engines import Runner
from quail_frames.lazy.pairs import JoinSide, record_pairs
from quail_frames.lazy.row_verbs import RowVerbs
from quail_frames.lazy.running import Running
from quail_frames.lazy.sources import io_source
from quail_frames.plan.calls import Overflow
from quail_frames.plan.logical import Node, PairKind, Source

if TYPE_CHECKING:
    from quail_frames.lazy.verbs import Verbs


def lazy(frame: pl.DataFrame | pl.LazyFrame | LazyFrame, *, engine: Runner | None = None) -> LazyFrame:
    """A planned frame over a Polars frame.

    Parameters
    ----------
    frame
        The data; a `pl.LazyFrame` is read in batches, so it may be larger than memory.
    engine
        Who answers; by default the engine of `configure` when the query runs.

    Examples
    --------
    >>> import polars as pl, quail_frames as qf
    >>> frame = qf.lazy(pl.DataFrame({"body": ["Win a prize!"], "id": [1]}))
    >>> frame.filter(qf.ai_if("Is {body} spam?")).collect_schema()
    Schema([('body', String), ('id', Int64)])
    """
    engine = None if engine is None else checked_engine(engine)
    if isinstance(frame, LazyFrame):
        return frame if engine is None else LazyFrame(frame._plan, frame._schema, engine)
    frame = checked_frame(frame)
    rows = frame.height if isinstance(frame, pl.DataFrame) else None
    schema = frame.collect_schema()
    text = "frame" if rows is None else f"frame of {rows:,} rows"
    return LazyFrame(Source(frame.lazy(), text, tuple(schema.names()), rows), schema, engine)


class LazyFrame(Running, RowVerbs):
    """A query over a frame, with AI calls anywhere in its expressions; made by `lazy`.

    Relational methods are those of `pl.LazyFrame`. Nothing is read or asked before
    `collect`, `collect_batches` or `sink_parquet`.
    """

    def __init__(self, plan: Node, schema: pl.Schema, engine: Runner | None = None) -> None:
        self._plan = plan
        self._schema = schema
        self._engine = engine

    def _next(self, plan: Node, schema: pl.Schema) -> Self:
        return type(self)(plan, schema, self._engine)

    def __repr__(self) -> str:
        return f"<quail_frames.LazyFrame of {len(self._schema)} columns; .explain() shows its plan>"

    def __copy__(self) -> Self:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        return self

    @property
    def ai(self) -> Verbs:
        """The AI verbs by their short names: `lf.ai.filter(...)`."""
        from quail_frames.lazy.verbs import Verbs

        return Verbs(self)

    def ai_join(
        self,
        other: pl.DataFrame | pl.LazyFrame | LazyFrame,
        template: str,
        *,
        how: PairKind = "inner",
        on: Any = None,
        left_on: Any = None,
        right_on: Any = None,
        where: pl.Expr | Sequence[pl.Expr] | None = None,
        suffix: str = "_right",
        selectivity: float | None = None,
        overflow: Overflow = "error",
        anchor: Literal["auto", "left", "right"] = "auto",
    ) -> Self:
        """Pairs of a row here and a row of `other` for which the answer is TRUE, in the order of this frame.

        Parameters
        ----------
        other
            The other frame, planned or plain.
        template
            The question about a pair. `{column}` is looked up in both frames; `{left.column}` and
            `{right.column}` say which one. A null in a column it reads makes no pair.
        how
            `inner`, `left` (rows here without a pair come once, with nulls), `semi` or `anti` (rows here with,
            or without, a pair; a row is asked about no further than its first TRUE).
        on, left_on, right_on
            Names or expressions that must be equal in both rows, as in `pl.LazyFrame.join`.
        where
            Predicates over the columns of both frames, as they are named after an inner join. Pairs that
            `on` or `where` exclude are not asked.
        suffix
            Added to the names of columns of `other` that are also here.
        selectivity
            Estimated share of pairs answered TRUE, 0..1; steers the plan, never answers.
        overflow
            For prompts longer than the model's context: `error`, `null` (no pair) or `truncate`.
        anchor
            The side whose documents stay in memory while the other's pass by; it is part of the prompt, so
            answers may depend on it. `auto` takes the cheaper one by a sample of both; `explain` names it.

        Returns
        -------
        LazyFrame
            The columns that `pl.LazyFrame.join` gives with these keys (without keys: a cross join).

        Raises
        ------
        CallError
            The template is malformed or asks about one frame only.
        ColumnError
            A column is not there, is in both frames, or cannot be rendered as text.
        PlanError
            An option is unknown, or a key or predicate cannot be decided from its own rows.
        """
        right = lazy(other)
        sides = JoinSide("left", self._plan, self._recorder), JoinSide("right", right._plan, right._recorder)
        node, schema = record_pairs(
            *sides,
            template,
            how=how,
            on=on,
            left_on=left_on,
            right_on=right_on,
            where=where,
            suffix=suffix,
            selectivity=selectivity,
            overflow=overflow,
            anchor=anchor,
        )
        if self._engine is not None and right._engine is not None and self._engine is not right._engine:
            raise PlanError("the two frames of ai_join name different engines: make both with the same one")
        return type(self)(node, schema, self._engine or right._engine)

    def collect_schema(self) -> pl.Schema:
        """Names and types of the result, exact; no model is asked and no row is read."""
        return self._schema

    def to_polars(self) -> pl.LazyFrame:
        """A real `pl.LazyFrame` that asks the model when it is collected.

        Projections, predicates and limits that Polars pushes into it join the plan.
        """
        return io_source(self, self._schema)
