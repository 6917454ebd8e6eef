"""What a workload's query is: the same plan written twice, and the tables that it reads."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace

import quail_frames as qf
from quail_frames.sql.dialects import DialectName

Tables = SimpleNamespace
"""Planned frames by their names: `tables.reviews`."""


@dataclass(frozen=True)
class Query:
    """A query of a family (`IMDB-4`), by its shape.

    `ordered` says that its rows come in one order only; others are compared as sets of rows.
    """

    id: str
    shape: str
    tables: tuple[str, ...]
    python: Callable[[Tables], qf.LazyFrame]
    sql: str
    dialect: DialectName = "snowflake"
    ordered: bool = False
