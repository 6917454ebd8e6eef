"""Data larger than memory: rows stream from file to file."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

SCRIPT = """
import resource, sys
import polars as pl, quail_frames as qf

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

source, target = sys.argv[1:]
qf.configure("oracle", kv_budget=64 << 20)
qf.lazy(pl.DataFrame({"text": ["warm", "up"]})).ai_filter("Is {text} good?").collect()
before = peak()
query = qf.lazy(pl.scan_parquet(source)).ai_filter("Is {text} good?", selectivity=0.5)
query.sink_parquet(target)
print(peak() - before)
"""


def run_filter(rows: int, folder: Path) -> tuple[int, int]:
    """Peak memory above the model's own, in bytes, and the number of rows written."""
    source, target = folder / "in.parquet", folder / "out.parquet"
    filler = "lorem ipsum dolor sit amet " * 7
    frame = pl.select(id=pl.int_range(rows)).with_columns(text=pl.format("row {} {}", "id", pl.lit(filler)))
    frame.write_parquet(source, row_group_size=50_000)
    command = [sys.executable, "-c", SCRIPT, str(source), str(target)]
    ran = subprocess.run(command, capture_output=True, text=True, check=True)
    return int(ran.stdout), pl.scan_parquet(target).select(pl.len()).collect().item()


def test_a_file_is_filtered_in_bounded_memory(tmp_path: Path) -> None:
    rows = 8_000
    memory, kept = run_filter(rows, tmp_path)
    assert 0.3 * rows < kept < 0.7 * rows
    assert memory < 500 << 20


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_million_rows_need_less_than_a_gigabyte(tmp_path: Path) -> None:
    memory, kept = run_filter(1_000_000, tmp_path)
    assert 300_000 < kept < 700_000
    assert memory < 1 << 30
