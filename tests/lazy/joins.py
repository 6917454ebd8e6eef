"""Frames to join and a question about a pair."""

from __future__ import annotations

import polars as pl

HOWS = ["inner", "left", "semi", "anti"]
PAGE_BYTES = 8 * 16


MATCH = "Does {left.text} mention {right.text}?"


LETTERS = pl.DataFrame({"k": [n % 10 for n in range(40)], "text": [f"text {n}" for n in range(40)]})
TERMS = pl.DataFrame({"k": range(10), "term": [f"term {n}" for n in range(10)]})
MENTIONS = "Does {text} mention {term}?"
