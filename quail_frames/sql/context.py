"""Tables under names, and queries over them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

import polars as pl

from quail_frames.lazy.frame import LazyFrame, lazy
from quail_frames.sql.dialects import DialectName, check_dialect, parse
from quail_frames.sql.query import QueryPlanner
from quail_frames.sql.scope import Names, Numbers
from quail_frames.sql.supported import check_supported

Frame = pl.DataFrame | pl.LazyFrame | LazyFrame


class SQLContext:
    """Runs SQL over registered frames, in the manner of `pl.SQLContext`.

    Parameters
    ----------
    frames
        Tables by name.
    dialect
        `snowflake` or `bigquery`.
    **named_frames
        More tables.

    Examples
    --------
    >>> import polars as pl, quail_frames as qf
    >>> context = qf.SQLContext(mail=pl.DataFrame({"body": ["Win!", "Hello"], "size": [4, 5]}))
    >>> context.execute("SELECT body FROM mail WHERE size > 4").collect().to_series().to_list()
    ['Hello']
    """

    def __init__(
        self,
        frames: Mapping[str, Frame] | None = None,
        *,
        dialect: DialectName = "snowflake",
        **named_frames: Frame,
    ) -> None:
        self.dialect = check_dialect(dialect)
        self._tables: dict[str, LazyFrame] = {}
        self.register_many({**(frames or {}), **named_frames})

    def register(self, name: str, frame: Frame) -> Self:
        """Add a table, or replace the one of that name."""
        self._tables[name] = lazy(frame)
        return self

    def register_many(self, frames: Mapping[str, Frame] | None = None, **named_frames: Frame) -> Self:
        """Add several tables."""
        for name, frame in {**(frames or {}), **named_frames}.items():
            self.register(name, frame)
        return self

    def unregister(self, *names: str) -> Self:
        """Forget tables."""
        for name in names:
            del self._tables[name]
        return self

    def tables(self) -> list[str]:
        """Names of the tables, sorted."""
        return sorted(self._tables)

    def execute(self, query: str) -> LazyFrame:
        """The query as a planned frame; nothing is read or asked before it is collected.

        Raises
        ------
        SqlError
            With every problem of the query, and its line and column.
        """
        tree = parse(query, self.dialect)
        check_supported(tree)
        return QueryPlanner(Names(self.dialect), Numbers(), self._tables).query(tree)
