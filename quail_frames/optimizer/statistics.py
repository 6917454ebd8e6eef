"""What planning knows about the rows: how many there are, how long their texts, how many of them differ.

The front end counts and samples (`quail_frames.lazy.sampling`); here are the figures, and what is assumed without them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from quail_frames.plan.logical import Expression, Source
from quail_frames.plan.selectivity import UNKNOWN_SHARE

UNKNOWN_ROWS = 1000.0
"""Rows of a source that nobody has counted."""
DOCUMENT_TOKENS = 200.0
"""Tokens of a text that nobody has looked at."""


@dataclass(frozen=True)
class ColumnFigures:
    """Mean tokens of a column's texts (None: not looked at), and how many of them differ (None: all)."""

    tokens: float | None = None
    distinct: float | None = None
    shared: float = 0.0
    """Mean tokens of a text that another sampled text starts with too, in whole pages."""

    @property
    def mean_tokens(self) -> float:
        """Tokens of a text, assumed where nobody has looked."""
        return DOCUMENT_TOKENS if self.tokens is None else self.tokens


@dataclass(frozen=True)
class SourceFigures:
    """Rows of a source, how they are known, and its columns as far as they were sampled."""

    rows: float = UNKNOWN_ROWS
    rows_from: str = "assumed"
    columns: Mapping[str, ColumnFigures] = field(default_factory=dict)
    sampled: int = 0
    """Rows that were looked at."""


@dataclass(frozen=True)
class Statistics:
    """Figures of every source, and of expressions that were evaluated on samples.

    Parameters
    ----------
    sources
        By the identity (`id`) of the source's frame, which the plan keeps alive.
    texts
        Computed inputs of calls, by the expression's key.
    passing
        Shares of rows that pass call-free predicates, by the predicate's key.
    tokens_from
        How texts were turned into tokens, in words.
    """

    sources: Mapping[int, SourceFigures] = field(default_factory=dict)
    texts: Mapping[str, ColumnFigures] = field(default_factory=dict)
    passing: Mapping[str, float] = field(default_factory=dict)
    tokens_from: str = "assumed"

    def of(self, source: Source) -> SourceFigures:
        """The source's figures; its own row count, or what is assumed, where nobody has looked."""
        found = self.sources.get(id(source.frame))
        if found is not None and source.frame is not None:
            return found
        return SourceFigures() if source.rows is None else SourceFigures(float(source.rows), "counted")

    def share(self, predicate: Expression) -> float:
        """Share of rows that pass a predicate without calls."""
        return self.passing.get(predicate.key, UNKNOWN_SHARE)
