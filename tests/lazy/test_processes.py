"""Queries in other processes, without asserts, and interrupted: what a user's script may do to them."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import polars as pl

ROOT = Path(__file__).parents[2]
POOL = """
import multiprocessing
import polars as pl
import quail_frames as qf

def part(rows):
    return collected(qf.lazy(rows).with_columns(ok=qf.ai_if("Is {t} one?")))

def collected(query):
    qf.configure("oracle")
    return query.collect()

if __name__ == "__main__":
    assert False, "python -O leaves asserts out"
    qf.configure("oracle")
    rows = pl.DataFrame({"t": [f"text {n}" for n in range(40)]})
    query = qf.lazy(rows).with_columns(ok=qf.ai_if("Is {t} one?"))
    whole = query.collect()
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        print(pool.apply(part, (rows,)).equals(whole), pool.apply(collected, (query,)).equals(whole), whole.height)
"""


def test_a_spawned_pool_asks_and_takes_queries_also_without_asserts(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(POOL)
    command = [sys.executable, "-O", str(script)]
    environment = {"PYTHONPATH": str(ROOT), "PATH": "", "HOME": str(tmp_path)}
    done = subprocess.run(command, capture_output=True, text=True, timeout=250, env=environment, check=False)
    assert done.stdout.strip() == "True True 40", done.stdout + done.stderr


def test_ctrl_c_ends_the_command_without_a_traceback_and_without_half_a_file(tmp_path: Path) -> None:
    rows = pl.DataFrame({"n": range(400_000)}).select(t=pl.format("text {}", "n"))
    rows.write_parquet(tmp_path / "rows.parquet")
    query = "SELECT * FROM rows WHERE AI_FILTER(PROMPT('Is {0} even?', t))"
    target = tmp_path / "out.parquet"
    program = "from quail_frames.cli import main; main()"
    command = [sys.executable, "-c", program, "sql", query, "--model", "oracle", "-o", str(target)]
    command += ["--table", f"rows={tmp_path / 'rows.parquet'}"]
    process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 120
        while not target.with_name("out.parquet.partial").exists() and process.poll() is None:
            assert time.monotonic() < deadline, "the query does not begin"
            time.sleep(0.02)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=120)
    finally:
        process.kill()
    assert process.returncode == 130, out + err
    assert "Traceback" not in err
    assert [path.name for path in tmp_path.iterdir()] == ["rows.parquet"]
