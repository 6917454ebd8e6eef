"""Frames one after the other."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, get_args

import polars as pl

from quail_frames.errors import PlanError
from quail_frames.lazy.frame import LazyFrame, lazy
from quail_frames.plan.logical import Concat

How = Literal["vertical", "vertical_relaxed"]


def concat(
    items: Iterable[LazyFrame | pl.LazyFrame | pl.DataFrame], *, how: How = "vertical", rechunk: bool = False
) -> LazyFrame:
    """The rows of several frames one after the other, planned as one query.

    Parameters
    ----------
    items
        Frames of the same columns in the same order, planned or plain, one at least.
    how
        `vertical`: their types must be equal; `vertical_relaxed`: a column takes the type that has room for all.
    rechunk
        As in `pl.concat`; changes nothing, for a result is in one piece.

    Raises
    ------
    PlanError
        There is no frame, or columns, types or engines of two frames do not go together.

    Examples
    --------
    >>> import polars as pl, quail_frames as qf
    >>> mail = [qf.lazy(pl.DataFrame({"body": [text]})) for text in ("Win a prize!", "See you at noon")]
    >>> qf.concat(mail).ai_filter("Is {body} spam?").columns
    ['body']
    """
    frames = [lazy(item) for item in items]
    if not frames:
        raise PlanError("concat of no frame: give one at least")
    if how not in get_args(How):
        raise PlanError(f"how={how!r} of concat: choose 'vertical' or 'vertical_relaxed', or concat before qf.lazy")
    first = frames[0]
    for number, frame in enumerate(frames, start=1):
        if frame.columns != first.columns:
            raise PlanError(
                f"frame {number} of concat has the columns {frame.columns}, the first one has {first.columns}: "
                "select the same columns in the same order"
            )
    try:
        schema = pl.concat([frame.empty for frame in frames], how=how).collect_schema()
    except pl.exceptions.PolarsError as error:
        raise PlanError(f"types of the frames of concat do not go together ({error}): cast them first") from error
    engines = {id(frame._engine): frame._engine for frame in frames if frame._engine is not None}
    if len(engines) > 1:
        raise PlanError("frames of concat have different engines: name one of them in collect, and none in qf.lazy")
    alike = all(frame.schema == schema for frame in frames)
    plan = Concat(tuple(frame._plan for frame in frames), tuple(schema.names()), alike)
    return LazyFrame(plan, schema, next(iter(engines.values()), None))
