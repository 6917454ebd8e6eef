"""AI-SQL on top: SQL text becomes the steps that a Python user would write on a lazy frame.

Imports sqlglot only when a query is translated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import polars as pl

    from quail_frames.lazy.frame import LazyFrame
    from quail_frames.sql.context import SQLContext as SQLContext
    from quail_frames.sql.dialects import DialectName


def sql(
    text: str, /, *, dialect: DialectName = "snowflake", **frames: pl.DataFrame | pl.LazyFrame | LazyFrame
) -> LazyFrame:
    """The query as a planned frame; nothing is read or asked before it is collected.

    Parameters
    ----------
    text
        One SELECT statement, with `AI_FILTER` / `AI.IF`, `AI_CLASSIFY` / `AI.CLASSIFY` and `AI_SCORE` / `AI.SCORE`.
    dialect
        `snowflake` or `bigquery`: names, null order, quotes and functions.
    **frames
        The tables, by name.

    Raises
    ------
    SqlError
        The text is not SQL, or not a query that can be planned; every problem is listed with its line and column.

    Examples
    --------
    >>> import polars as pl, quail_frames as qf
    >>> reviews = pl.DataFrame({"review": ["Great!", "Meh."], "stars": [5, 2]})
    >>> query = "SELECT review FROM reviews WHERE stars > 3 AND AI_FILTER(PROMPT('Is {0} positive?', review))"
    >>> qf.sql(query, reviews=reviews).collect_schema()
    Schema([('review', String)])
    """
    from quail_frames.sql.context import SQLContext

    return SQLContext(frames, dialect=dialect).execute(text)


def __getattr__(name: str) -> Any:
    """`SQLContext`, imported when first used: it loads sqlglot."""
    if name == "SQLContext":
        from quail_frames.sql.context import SQLContext

        return SQLContext
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
