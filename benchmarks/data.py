"""Texts to measure on: the larger data pack where it lies beside the repository, else the samples in examples/data."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path

import numpy as np
import polars as pl

from quail_frames.runtime.compiled import Tokenizer
from quail_frames.runtime.tokens.ragged import Ragged, offsets_of, ranges

ROOT = Path(__file__).parents[1]
VARIABLE = "QUAIL_FRAMES_BENCHMARK_DATA"
"""Environment variable that names a folder with the data pack."""


def folders() -> tuple[Path, ...]:
    """Where tables are looked for, in order."""
    named = os.environ.get(VARIABLE)
    return (*([Path(named)] if named else []), ROOT.parent / "shared" / "data", ROOT / "examples" / "data")


def table(name: str) -> pl.DataFrame | None:
    """The table of this name from the first folder that has it; None where none has."""
    for folder in folders():
        path = folder / f"{name}.parquet"
        if path.exists():
            return pl.read_parquet(path)
    return None


def texts(name: str, column: str = "text") -> list[str]:
    """The non-null values of a column of a table."""
    frame = table(name)
    if frame is None:
        raise FileNotFoundError(f"no table {name!r} in {', '.join(map(str, folders()))}; set {VARIABLE}")
    return frame[column].drop_nulls().to_list()


def cut_to(texts: Sequence[str], tokens: int, tokenizer: Tokenizer) -> list[str]:
    """Parts of the texts, whole lines, of about `tokens` tokens each: every text's first part, then every second...

    Where a text has no lines its sentences are taken.
    """
    parts = [list(_parts(text, tokens, tokenizer)) for text in texts]
    longest = max(map(len, parts), default=0)
    return [part[number] for number in range(longest) for part in parts if number < len(part)]


def _parts(text: str, tokens: int, tokenizer: Tokenizer) -> Iterator[str]:
    """Runs of lines that come nearest to `tokens` tokens; what is left at the end is not a part."""
    lines = text.splitlines(keepends=True)
    if len(lines) < 2:
        lines = list(chain.from_iterable((sentence, ". ") for sentence in text.split(". ")))
    total, start = 0, 0
    for number, length in enumerate(tokenizer.encode(lines).lengths.tolist()):
        if total and total + length - tokens > tokens - total:
            yield "".join(lines[start:number]).strip()
            total, start = 0, number
        total += length
        if total >= tokens:
            yield "".join(lines[start : number + 1]).strip()
            total, start = 0, number + 1


def heads(lists: Ragged, tokens: int) -> Ragged:
    """Each list's first `tokens` tokens."""
    lengths = np.minimum(lists.lengths, tokens)
    return Ragged(lists.values[ranges(lists.offsets[:-1], lengths)], offsets_of(lengths))
