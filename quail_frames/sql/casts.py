"""CAST and TRY_CAST: SQL's types as Polars', and its rules from one to another."""

from __future__ import annotations

from typing import Any

import polars as pl
from sqlglot import exp

from quail_frames.sql.problems import fail
from quail_frames.sql.scalars import Translator


def cast(to: Translator, node: Any) -> pl.Expr:
    """The value as another type; TRY_CAST gives NULL where it has none."""
    strict = not isinstance(node, exp.TryCast)
    target = sql_type(node.to)
    if target is None:
        fail(node, f"CAST to {node.to.sql()} is not supported: cast to INT, FLOAT, DECIMAL, STRING, BOOLEAN or DATE")
    expr = to(node.this)
    found = to.dtype(expr)
    if found == pl.String and target in (pl.Date, pl.Datetime):
        if isinstance(node.this, exp.Literal):
            return _dated(node.this, target)
        if target == pl.Date:
            return expr.str.to_date("%Y-%m-%d", strict=strict)
        return expr.str.to_datetime(strict=strict)
    if found == pl.String and target == pl.Boolean:
        fail(node, "a text is no BOOLEAN: compare it, for example with = 'true'")
    if found.is_float() and target == pl.Int64:
        expr = expr.round(0, mode="half_away_from_zero")
    return expr.cast(target, strict=strict)


def _dated(literal: exp.Literal, target: pl.DataType) -> pl.Expr:
    value = pl.select(pl.lit(literal.this).str.to_datetime(strict=False).cast(target)).item()
    if value is None:
        fail(literal, f"{literal.this!r} is no {target}: write it as '2024-12-31'")
    return pl.lit(value)


def sql_type(to: exp.DataType) -> pl.DataType | None:
    """The Polars type of a SQL type; None where there is none."""
    if to.is_type("decimal"):
        sizes = [int(size.this.this) for size in to.expressions]
        return pl.Decimal(sizes[0], sizes[1]) if len(sizes) == 2 and sizes[1] else pl.Int64()
    families: dict[pl.DataType, tuple[str, ...]] = {
        pl.Int64(): ("int", "bigint", "smallint", "tinyint"),
        pl.Float64(): ("float", "double"),
        pl.String(): ("text", "varchar", "char"),
        pl.Boolean(): ("boolean",),
        pl.Date(): ("date",),
        pl.Datetime("us"): ("timestamp", "datetime", "timestampntz"),
    }
    return next((found for found, names in families.items() if to.is_type(*names)), None)
