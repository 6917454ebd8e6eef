"""Eviction as it is expected and as it happens: texts computed again where memory is short."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import polars as pl
import pytest

import quail_frames as qf
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.report import RunReport

RNG = np.random.default_rng(0)
TEXTS = ["".join(map(chr, RNG.integers(97, 123, RNG.integers(40, 400)))) for _ in range(200)]
TERMS, TONES = pl.DataFrame({"term": ["a", "b"]}), pl.DataFrame({"tone": ["glad", "sad"]})
BATCH = 400
Build = Callable[[qf.LazyFrame, float], qf.LazyFrame]


def filtered_sorted_joined(query: qf.LazyFrame, share: float) -> qf.LazyFrame:
    kept = query.ai_filter("Is {text} good?", selectivity=share).sort("text")
    return kept.ai_join(TERMS, "Does {text} mention {term}?", selectivity=0.5, anchor="left")


def joined_sorted_joined(query: qf.LazyFrame, share: float) -> qf.LazyFrame:
    joined = query.ai_join(TERMS, "Does {text} mention {term}?", selectivity=share, anchor="left").sort("text")
    return joined.ai_join(TONES, "Is {text} {tone}?", selectivity=0.5, anchor="left")


def measured(build: Build, pages: int, share: float = 0.5) -> tuple[int, float, float]:
    """(tokens computed again, as expected, share of the first questions answered TRUE)."""
    with Engine("oracle", kv_budget=8 * PAGE * pages, token_budget=BATCH) as engine:
        query, report = build(qf.lazy(pl.DataFrame({"text": TEXTS}), engine=engine), share), RunReport()
        query.collect(report=report)
        first = next(iter(report.asked))
        expected = regret(query.explain(format="json")["planned"])
    return report.regret_tokens, expected, report.passed[first] / report.asked[first]


def regret(step: dict) -> float:  # type: ignore[type-arg]
    return step["regret_tokens"] + sum(map(regret, step["inputs"]))


@pytest.mark.parametrize("build", [filtered_sorted_joined, joined_sorted_joined])
def test_what_memory_cannot_hold_is_expected_to_be_computed_again(build: Build) -> None:
    free, expected, share = measured(build, pages=20_000)
    assert free == expected == 0
    for pages in (1200, 400):
        happened, expected, _ = measured(build, pages, share)
        assert happened > 0 and expected == pytest.approx(happened, rel=0.15)


def test_rows_that_stream_find_their_texts_in_memory() -> None:
    many = pl.DataFrame({"text": [f"{n} {text}" for n in range(5) for text in TEXTS]})
    with Engine("oracle", kv_budget=8 * PAGE * 3000, token_budget=BATCH) as engine:
        query, report = qf.lazy(many, engine=engine).ai_filter("Is {text} good?"), RunReport()
        query = query.ai_join(TERMS, "Does {text} mention {term}?", anchor="left")
        query.collect(report=report)
        assert report.regret_tokens == 0 == regret(query.explain(format="json")["planned"])


def test_explain_says_what_is_computed_again() -> None:
    with Engine("oracle", kv_budget=8 * PAGE * 400, token_budget=BATCH) as engine:
        query = filtered_sorted_joined(qf.lazy(pl.DataFrame({"text": TEXTS}), engine=engine), 0.5)
        assert " of them again because memory is short" in query.explain()
