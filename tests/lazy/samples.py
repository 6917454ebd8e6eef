"""A small frame and a question about it, for the tests of the planned frame."""

from __future__ import annotations

import polars as pl

import quail_frames as qf
from tests.support.reference_engine import ReferenceEngine

LABELS = ["plot", "acting", "other"]
FRAME = pl.DataFrame(
    {
        "review": ["good", "bad", None, "good", "", "fine"],
        "stars": [5, 1, 3, 5, None, 4],
        "kind": pl.Series(["a", "b", "a", None, "b", "a"], dtype=pl.Categorical),
    }
)
GOOD = "Is {review} good?"


def asked(engine: ReferenceEngine) -> list[str]:
    return sorted(text for _, (text, *_) in engine.asks)


CHEAP = pl.col("stars") >= 4
ASK = qf.ai_if(GOOD)
