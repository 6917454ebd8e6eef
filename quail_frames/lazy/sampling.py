"""Statistics of a query's sources: rows counted where that takes a glance, texts and predicates from a few rows.

No model is asked, and a source that runs Python code, filters a file, or needs all its rows first is not looked at.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import polars as pl
from polars.exceptions import PolarsError

from quail_frames.lazy.inputs import as_text
from quail_frames.optimizer.statistics import UNKNOWN_ROWS, ColumnFigures, SourceFigures, Statistics
from quail_frames.plan.logical import (
    Ask,
    AskPairs,
    CallUse,
    Expression,
    Filter,
    Join,
    Node,
    Source,
    expressions,
    inputs,
    walk,
)

SAMPLE_ROWS = 256
SLICES = 16
"""A frame in memory is looked at in so many places."""
PAGE = 16
"""Tokens of a KV page: rows share whole ones."""
MEASURED_ROWS = 8192
"""Rows of a frame in memory whose texts' bytes are averaged: 256 lengths that spread can miss their mean by 5%."""
TOKENISED = 48
"""Sampled texts of a column that are tokenised; the others count by their bytes."""
TOKENISED_BYTES = 2000
"""Bytes of a text that are tokenised at most."""
_NOT_AT_A_GLANCE = re.compile(r"python|\.map_\w+\(|\b(AGGREGATE|JOIN|SORT|UNIQUE)\b", re.IGNORECASE)
_FROM_FILE = re.compile(r"\b(PARQUET|CSV|NDJSON|IPC) SCAN\b", re.IGNORECASE)
_COUNTED = re.compile(r"^(DF \[|PARQUET SCAN|IPC SCAN)", re.IGNORECASE)

CountTokens = Callable[[Sequence[str]], int]
"""Tokens of all these texts together."""


@dataclass(frozen=True)
class Look:
    """A source's first rows (or rows from all over it), how many it has, and how that is known."""

    rows: float
    rows_from: str
    sample: pl.DataFrame
    more: pl.LazyFrame | None = None
    """A frame in memory, of which more rows than the sample can be measured."""


def statistics_of(plan: Node, count_tokens: CountTokens, tokens_from: str) -> Statistics:
    """Figures of every source of a plan as written, and of the expressions that its calls and filters compute."""
    sources, wanted = list(_sources(plan)), _wanted_columns(plan)
    looks = {id(source.frame): look(source) for source in sources}
    figures = {key: _figures(each, wanted, count_tokens) for key, each in looks.items()}
    samples = [each.sample for each in looks.values() if each.sample.height]
    inputs_of_calls = [text for use in _uses(plan) for text in use.inputs]
    made = [
        e for node in walk(plan) for e in expressions(node) if set(e.names) & wanted and not isinstance(node, Filter)
    ]
    texts = {e.key: e for e in (*inputs_of_calls, *made) if e.column is None and not e.calls}
    measured = {key: _measured(text, samples, count_tokens) for key, text in texts.items()}
    predicates = {p.key: p for p in _predicates(plan)}
    shares = {key: _share(predicate, samples) for key, predicate in predicates.items()}
    return Statistics(
        figures,
        {key: found for key, found in measured.items() if found is not None},
        {key: share for key, share in shares.items() if share is not None},
        tokens_from,
    )


def look(source: Source) -> Look:
    """A glance at a source."""
    frame: pl.LazyFrame = source.frame
    text = frame.explain(optimized=False)
    rows, rows_from = _rows(source, frame, text)
    if _NOT_AT_A_GLANCE.search(text) or (_FROM_FILE.search(text) and "FILTER" in text):
        return Look(rows, rows_from, pl.DataFrame(schema=frame.collect_schema()))
    spread = text.startswith("DF [") and rows_from == "counted" and rows > SAMPLE_ROWS
    if spread:
        return Look(rows, rows_from, _spread(frame, int(rows)), frame)
    return Look(rows, rows_from, frame.head(SAMPLE_ROWS).collect())


def _rows(source: Source, frame: pl.LazyFrame, text: str) -> tuple[float, str]:
    if source.rows is not None:
        return float(source.rows), "counted"
    if _COUNTED.match(text):  # a frame in memory, or a file whose footer says it
        return float(frame.select(pl.len()).collect().item()), "counted"
    return UNKNOWN_ROWS, "assumed"


def _spread(frame: pl.LazyFrame, rows: int) -> pl.DataFrame:
    """Slices from all over a frame in memory."""
    length = SAMPLE_ROWS // SLICES
    places = [(rows - length) * number // (SLICES - 1) for number in range(SLICES)]
    return pl.concat([frame.slice(place, length) for place in places]).collect()


def _sources(plan: Node) -> Iterator[Source]:
    for node in walk(plan):
        if isinstance(node, Source) and isinstance(node.frame, pl.LazyFrame):
            yield node


def _uses(plan: Node) -> Iterator[CallUse]:
    for node in walk(plan):
        for expression in expressions(node):
            yield from expression.calls
        if isinstance(node, Ask):
            yield from node.calls


def _predicates(plan: Node) -> Iterator[Expression]:
    """Call-free predicates, and the masks inside those with calls."""
    for node in walk(plan):
        found = node.predicates if isinstance(node, Filter) else node.where if isinstance(node, AskPairs) else ()
        yield from (p for p in found if not p.calls and p.row_local)
        tests = [p.test for p in (*found, *(node.keep if isinstance(node, Ask) else ())) if p.test is not None]
        yield from (mask for test in tests for mask in test.masks)


def _wanted_columns(plan: Node) -> frozenset[str]:
    """Names of columns whose texts or distinct values planning asks for, wherever they stand."""
    names: set[str] = set()
    for use in _uses(plan):
        names |= use.reads or frozenset()
    for node in walk(plan):
        if isinstance(node, AskPairs):
            names |= {name for _, name in node.slots}
            names |= {key.column for pair in node.keys for key in pair if key.column is not None}
        if isinstance(node, Join):
            names |= {key.column for pair in node.detail or () for key in pair if key.column is not None}
        for expression in expressions(node):
            if expression.column is not None:
                names.add(expression.column)
            elif expression.reads is not None and len(inputs(node)) == 1 and not expression.calls:
                names |= expression.reads
    return frozenset(names)


def _figures(found: Look, wanted: frozenset[str], count_tokens: CountTokens) -> SourceFigures:
    names = [name for name, dtype in found.sample.schema.items() if name in wanted and not dtype.is_nested()]
    lengths = _mean_bytes(found, [name for name in names if found.sample.schema[name] == pl.String])
    columns = {
        name: _column(found.sample[name], found.rows, count_tokens, lengths.get(name))
        for name in names
        if found.sample.height
    }
    return SourceFigures(found.rows, found.rows_from, columns, found.sample.height)


def _mean_bytes(found: Look, names: Sequence[str]) -> dict[str, float]:
    """Mean bytes of these columns' texts in rows from all over a frame in memory; nothing for other sources."""
    if found.more is None or not names:
        return {}
    step = max(1, int(found.rows) // MEASURED_ROWS) | 1  # odd: rows that alternate must not hide each other
    means = found.more.select(names).gather_every(step).select(pl.all().str.len_bytes().mean()).collect()
    return {name: value for name, value in means.row(0, named=True).items() if value is not None}


def _column(values: pl.Series, rows: float, count_tokens: CountTokens, mean_bytes: float | None) -> ColumnFigures:
    has_text = not isinstance(values.dtype, pl.Binary | pl.Object | pl.Duration | pl.Null)
    tokens = _tokens(values.cast(pl.String), count_tokens, mean_bytes) if has_text else None
    shared = _shared(values, tokens) if isinstance(values.dtype, pl.String) else 0.0
    return ColumnFigures(tokens, None if isinstance(values.dtype, pl.Object) else _distinct(values, rows), shared)


def _tokens(texts: pl.Series, count_tokens: CountTokens, mean_bytes: float | None = None) -> float | None:
    """Mean tokens of the texts, nulls left out: mean bytes times the tokens a byte of some of them."""
    texts = texts.drop_nulls()
    mean = texts.str.len_bytes().mean() if mean_bytes is None else mean_bytes
    if not isinstance(mean, float) or not mean:
        return 0.0 if len(texts) else None
    step = max(1, len(texts) // TOKENISED)
    some = [text[:TOKENISED_BYTES] for text in texts.gather_every(step).to_list()]
    return mean * count_tokens(some) / max(1, sum(len(text.encode()) for text in some))


def _shared(texts: pl.Series, tokens: float | None) -> float:
    """Mean tokens that a text has in common with the start of another one of the sample, in whole pages."""
    ordered = texts.drop_nulls().unique().sort().to_list()
    if len(ordered) < 2 or not tokens:
        return 0.0
    common = [_common_start(*pair) for pair in pairwise(ordered)]
    longest = [max(before, after) for before, after in zip([0, *common], [*common, 0], strict=True)]
    density = tokens * len(ordered) / max(1, sum(map(len, ordered)))
    return sum(int(length * density) // PAGE * PAGE for length in longest) / len(ordered)


def _common_start(one: str, other: str) -> int:
    """Characters that both texts start with."""
    longest = min(len(one), len(other))
    return next((at for at in range(longest) if one[at] != other[at]), longest)


def _distinct(values: pl.Series, rows: float) -> float | None:
    """Expected distinct values among all rows; None where every sampled value differs.

    Good and Turing (1953): the next row brings a new value with the share of sampled values that were seen once.
    """
    counts = values.drop_nulls().value_counts(name="quail-frames count")["quail-frames count"]
    seen, once = int(counts.sum()), int((counts == 1).sum())
    if not seen or once == seen:
        return None
    return len(counts) + max(0.0, rows - seen) * once / seen


def _measured(text: Expression, samples: Sequence[pl.DataFrame], count_tokens: CountTokens) -> ColumnFigures | None:
    """Tokens of a computed input, on a sample that has its columns."""
    found = _evaluated(text, samples, lambda body: as_text(body))
    if found is None:
        return None
    tokens = _tokens(found, count_tokens)
    return None if tokens is None else ColumnFigures(tokens)


def _share(predicate: Expression, samples: Sequence[pl.DataFrame]) -> float | None:
    """Share of a sample's rows that pass a predicate, never quite none or all of them: a sample is small."""
    found = _evaluated(predicate, samples, lambda body: body.cast(pl.Boolean))
    if found is None or not len(found):
        return None
    least = 0.5 / len(found)
    return min(max(float(found.fill_null(False).mean() or 0.0), least), 1.0)  # type: ignore[arg-type]


def _evaluated(
    expression: Expression, samples: Sequence[pl.DataFrame], change: Callable[[pl.Expr], pl.Expr]
) -> pl.Series | None:
    """The expression on the first sample that has its columns; None where it reads columns made on the way."""
    reads = expression.reads
    sample = None if not reads else next((each for each in samples if reads <= set(each.columns)), None)
    body: Any = expression.body
    if sample is None or body is None or not expression.row_local:
        return None
    try:
        return sample.select(change(body).alias("value")).to_series()
    except PolarsError:
        return None  # the sample's column has another type than the one made on the way: nothing is known
