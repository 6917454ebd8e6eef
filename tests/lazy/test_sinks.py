"""A Parquet sink under interruption, bad targets and company: whole files only, and nothing left behind."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import quail_frames as qf
from quail_frames.errors import PlanError

ROWS = pl.DataFrame({"n": range(50)}).with_columns(t=pl.format("text {}", "n"))

INTERRUPTED = """
import os, signal, sys, threading, time
from pathlib import Path
import polars as pl
import quail_frames as qf

signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background inherits that it is ignored
qf.configure("oracle")
target = Path(sys.argv[1])
partial = target.with_name(target.name + ".partial")
rows = pl.DataFrame({"n": range(400_000)}).with_columns(t=pl.format("text {}", "n")).lazy()

def interrupt():
    while not partial.exists():
        time.sleep(0.01)
    while partial.exists():  # an interrupt that arrives in a destructor is lost: Python prints and forgets it
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(20)

threading.Thread(target=interrupt, daemon=True).start()
try:
    rows.ai.filter("Is {t} even?").sink_parquet(target)
except KeyboardInterrupt:
    print([path.name for path in target.parent.iterdir()])
"""


def test_ctrl_c_leaves_nothing_behind(tmp_path: Path) -> None:
    command = [sys.executable, "-c", INTERRUPTED, str(tmp_path / "out.parquet")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=280)
    assert done.stdout.strip() == "[]", done.stdout + done.stderr


@pytest.mark.skipif(os.name != "posix", reason="files are locked on POSIX only")
def test_ctrl_c_while_the_file_is_made_leaves_nothing_behind(
    engine: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("fcntl.flock", interrupted)
    with pytest.raises(KeyboardInterrupt):
        qf.lazy(ROWS).ai_filter("Is {t} even?").sink_parquet(tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_process_left_is_written_over(engine: object, tmp_path: Path) -> None:
    (tmp_path / "out.parquet.partial").write_bytes(b"half a file")
    qf.lazy(ROWS).ai_filter("Is {t} even?").sink_parquet(tmp_path / "out.parquet")
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]


def test_an_error_in_the_query_leaves_nothing_behind(engine: object, tmp_path: Path) -> None:
    def fails(frame: pl.DataFrame) -> pl.DataFrame:
        raise RuntimeError("in the user's own function")

    query = qf.lazy(ROWS).ai_filter("Is {t} even?").map_batches(fails, schema=ROWS.schema)
    with pytest.raises((RuntimeError, pl.exceptions.ComputeError), match="own function"):
        query.sink_parquet(tmp_path / "out.parquet")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("target", [5, None, io.BytesIO(), "s3://bucket/out.parquet"])
def test_a_target_that_is_no_local_file_is_refused_before_anything_is_asked(reference: Any, target: Any) -> None:
    with pytest.raises(PlanError, match="local file"):
        qf.lazy(ROWS).ai_filter("Is {t} even?").sink_parquet(target)
    assert not reference.asks


def test_a_folder_is_refused_before_anything_is_asked(reference: Any, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    with pytest.raises(PlanError, match="which is a folder"):
        qf.lazy(ROWS).ai_filter("Is {t} even?").sink_parquet(tmp_path / "folder")
    assert not reference.asks and [path.name for path in tmp_path.iterdir()] == ["folder"]


def test_a_sink_is_not_put_off(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="to_polars"):
        qf.lazy(ROWS).sink_parquet(tmp_path / "out.parquet", lazy=True)


def test_a_home_folder_and_missing_folders_are_as_polars_reads_them(
    engine: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    qf.lazy(ROWS).ai_filter("Is {t} even?").sink_parquet("~/new/out.parquet", mkdir=True)
    assert (tmp_path / "new" / "out.parquet").is_file()


@pytest.mark.skipif(sys.platform == "win32", reason="files are locked on POSIX systems")
def test_two_sinks_to_one_place_do_not_mix_their_rows(engine: object, tmp_path: Path) -> None:
    entered, done = threading.Event(), threading.Event()

    def waits(frame: pl.DataFrame) -> pl.DataFrame:
        entered.set()
        assert done.wait(30)
        return frame

    target = tmp_path / "out.parquet"
    slow = qf.lazy(ROWS).ai_score("Is {t} even?").map_batches(waits)
    thread = threading.Thread(target=slow.sink_parquet, args=(target,))
    thread.start()
    try:
        assert entered.wait(30)
        with pytest.raises(PlanError, match="another query is writing"):
            qf.lazy(ROWS).ai_filter("Is {t} even?").sink_parquet(target)
    finally:
        done.set()
        thread.join()
    assert pl.read_parquet(target).height == ROWS.height
    assert [path.name for path in tmp_path.iterdir()] == ["out.parquet"]
