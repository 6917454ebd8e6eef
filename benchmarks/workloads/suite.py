"""All queries, family by family."""

from __future__ import annotations

from benchmarks.workloads import bank, cuad, faers, imdb, scifact, swe
from benchmarks.workloads.query import Query

QUERIES: tuple[Query, ...] = (
    *imdb.QUERIES,
    *faers.QUERIES,
    *scifact.QUERIES,
    *bank.QUERIES,
    *swe.QUERIES,
    *cuad.QUERIES,
)
