"""Relational queries give the rows that DuckDB gives for the same text, transpiled from the same dialect."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal
from typing import Any

import duckdb
import pytest
import sqlglot

import quail_frames as qf
from tests.sql.grammar import TABLES, Generator

PER_TEST = 20


@pytest.fixture(scope="module")
def database() -> Iterator[duckdb.DuckDBPyConnection]:
    """DuckDB with the same tables."""
    connection = duckdb.connect()
    for name, frame in TABLES.items():
        connection.register(f"{name}_arrow", frame.to_arrow())
        connection.execute(f"CREATE TABLE {name} AS SELECT * FROM {name}_arrow")
    yield connection
    connection.close()


def plain(value: Any) -> Any:
    """A value that compares equal wherever both engines mean the same."""
    if isinstance(value, Decimal | float):
        return None if math.isnan(value) else float(f"{float(value):.9g}") + 0.0
    return value


def rows(found: Any, *, ordered: bool) -> list[tuple[Any, ...]]:
    listed = [tuple(map(plain, row)) for row in found]
    return (
        listed
        if ordered
        else sorted(listed, key=lambda row: [(value is None, str(type(value)), str(value)) for value in row])
    )


@pytest.mark.parametrize("dialect", ["snowflake", "bigquery"])
@pytest.mark.parametrize("block", range(8))
def test_generated_queries_agree_with_duckdb(database: duckdb.DuckDBPyConnection, dialect: str, block: int) -> None:
    for seed in range(block * PER_TEST, (block + 1) * PER_TEST):
        text, ordered = Generator(dialect, seed).query()
        ours = qf.sql(text, dialect=dialect, **TABLES).collect()
        theirs = database.execute(sqlglot.transpile(text, read=dialect, write="duckdb")[0]).fetchall()
        assert rows(ours.rows(), ordered=ordered) == rows(theirs, ordered=ordered), f"seed {seed}: {text}"


ONE = "(VALUES (1, 2), (3, 4), (NULL, 6)) AS a(x, y)"
OTHER = "(VALUES (3, 5), (6, 7), (NULL, 8)) AS b(x, z)"
VALUES = "(VALUES (1, 'a', NULL), (2, NULL, 1.5), (NULL, 'it''s', -1)) AS t(x, y, z)"


@pytest.mark.parametrize(
    "text",
    [
        f"SELECT * FROM {VALUES} ORDER BY x",
        f"SELECT o.id, t.y FROM orders o JOIN {VALUES} ON o.id = t.x ORDER BY 1",
        f"WITH v AS (SELECT x + 1 AS x FROM {VALUES}) SELECT x FROM v WHERE x NOT IN (SELECT 3) ORDER BY x",
        "SELECT id FROM orders WHERE qty NOT IN (SELECT qty FROM orders WHERE FALSE) ORDER BY id",
        "SELECT id FROM orders WHERE NOT (id IN (SELECT stars FROM notes WHERE stars IS NOT NULL)) ORDER BY id",
        "SELECT id, qty FROM orders QUALIFY COUNT(*) OVER (PARTITION BY id) > 1 AND qty > 0 ORDER BY id",
        f"SELECT * FROM {ONE} FULL JOIN {OTHER} USING (x) ORDER BY x",
        f"SELECT x, y, z FROM {ONE} RIGHT JOIN {OTHER} USING (x) ORDER BY z",
        f"SELECT x, COUNT(*) FROM {ONE} FULL JOIN {OTHER} USING (x) GROUP BY x ORDER BY x",
        "SELECT COUNT(*) FROM (SELECT id FROM orders QUALIFY RANK() OVER (ORDER BY paid) = 1) s",
        "SELECT id FROM orders WHERE qty = (SELECT MAX(qty) FROM orders WHERE id > (SELECT MIN(id) FROM notes))",
    ],
)
def test_queries_inside_queries_agree_with_duckdb(database: duckdb.DuckDBPyConnection, text: str) -> None:
    theirs = database.execute(sqlglot.transpile(text, read="snowflake", write="duckdb")[0]).fetchall()
    assert rows(qf.sql(text, **TABLES).collect().rows(), ordered=True) == rows(theirs, ordered=True)
