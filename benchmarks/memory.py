"""A large Parquet file through a filter into `sink_parquet`, and the peak of memory above the model's own.

The oracle answers, so what is measured is the reading window, the operators and the writer.
"""

from __future__ import annotations

import resource
import sys
import tempfile
import time
from argparse import Namespace
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np
import polars as pl
import pyarrow.parquet as pq

import quail_frames as qf
from benchmarks.common import Machine, options, show, write

FRAGMENTS = 5_000
CHUNK = 50_000
WORDS = ("the", "a", "film", "ending", "actor", "plot", "scene", "music", "slow", "bright", "never", "again", "story")
STATUS, CLEAR_REFS = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass(frozen=True)
class Result:
    """Bytes are of resident memory: `above_bytes` is the peak of the query over what the loaded engine held before."""

    rows: int
    kept: int
    mean_characters: float
    before_bytes: int
    peak_bytes: int
    seconds: float

    @property
    def above_bytes(self) -> int:
        return self.peak_bytes - self.before_bytes


def write_texts(path: Path, rows: int, seed: int = 0) -> float:
    """A Parquet file of distinct texts of about 200 characters, written in pieces; returns their mean length."""
    random = np.random.default_rng(seed)
    pool = pl.Series([" ".join(random.choice(WORDS, 10)) for _ in range(FRAGMENTS)])
    characters = 0
    schema = (
        pl.DataFrame({"id": pl.Series([], dtype=pl.Int64), "text": pl.Series([], dtype=pl.String)}).to_arrow().schema
    )
    with pq.ParquetWriter(path, schema, compression="zstd") as writer:
        for start in range(0, rows, CHUNK):
            count = min(CHUNK, rows - start)
            parts = [pool.gather(random.integers(0, FRAGMENTS, count)).alias(str(part)) for part in range(4)]
            numbers = pl.Series("id", range(start, start + count), dtype=pl.Int64)
            frame = pl.DataFrame([numbers, *parts])
            frame = frame.select("id", text=pl.concat_str("id", "0", "1", "2", "3", separator=" ").str.slice(0, 200))
            characters += int(frame["text"].str.len_chars().sum())
            writer.write_table(frame.to_arrow().cast(schema))
    return characters / rows


def resident_bytes() -> int:
    """Resident memory now."""
    return _status("VmRSS") if STATUS.exists() else peak_bytes()


def peak_bytes() -> int:
    """The most resident memory since `reset_peak` (since the start, where the system cannot reset it)."""
    if STATUS.exists():
        return _status("VmHWM")
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def reset_peak() -> None:
    """Begin a new peak (Linux)."""
    if CLEAR_REFS.exists():
        CLEAR_REFS.write_text("5")


def _status(field: str) -> int:
    lines = (line.split() for line in STATUS.read_text().splitlines())
    return next(int(parts[1]) * 1024 for parts in lines if parts[0] == f"{field}:")


def filtered(source: Path, target: Path, engine: qf.Engine) -> None:
    """The query."""
    frame = qf.lazy(pl.scan_parquet(source))
    frame.ai_filter("Does this text speak of the ending?\n\n{text}").sink_parquet(target, engine=engine)


def measure(options: Namespace, folder: Path) -> Result:
    """Write the file, open the engine, warm up on a few rows, run the query."""
    source, few = folder / "texts.parquet", folder / "few.parquet"
    mean = write_texts(source, options.rows)
    write_texts(few, 100, seed=1)
    with qf.Engine("oracle") as engine:
        filtered(few, folder / "few_kept.parquet", engine)
        reset_peak()
        before, started = resident_bytes(), time.perf_counter()
        filtered(source, folder / "kept.parquet", engine)
        seconds, peak = time.perf_counter() - started, peak_bytes()
    kept = pq.read_metadata(folder / "kept.parquet").num_rows
    return Result(options.rows, kept, mean, before, peak, seconds)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=1_000_000, help="of the file (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    machine = Machine.here()
    with tempfile.TemporaryDirectory() as folder:
        result = measure(chosen, Path(folder))
    columns = ["rows", "kept", "characters", "seconds", "before MB", "peak MB", "above MB"]
    sizes = [round(size / 1e6) for size in (result.before_bytes, result.peak_bytes, result.above_bytes)]
    row = [f"{result.rows:,}", result.kept, result.mean_characters, result.seconds, *sizes]
    show("Filter of a Parquet file into another", columns, [row], machine.line())
    write(chosen.json, {**asdict(result), "above_bytes": result.above_bytes}, machine)


if __name__ == "__main__":
    main()
