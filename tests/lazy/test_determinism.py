"""Plans and answers are the same for copies, threads, engines and hash seeds."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import threading

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from tests.lazy.samples import FRAME, GOOD
from tests.support.reference_engine import ReferenceEngine


def test_copies_and_threads_agree(engine: object) -> None:
    expr = qf.ai_score(GOOD) > 0.4
    query = qf.lazy(FRAME).ai.filter(GOOD).filter(expr)
    truth = query.collect()
    assert_frame_equal(copy.deepcopy(query).collect(), truth)
    assert_frame_equal(qf.lazy(FRAME).ai.filter(GOOD).filter(copy.deepcopy(expr)).collect(), truth)
    found: list[pl.DataFrame] = []
    threads = [threading.Thread(target=lambda: found.append(query.collect())) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 4
    assert all(frame.equals(truth) for frame in found)


def test_two_engines_never_mix() -> None:
    expr = qf.ai_score(GOOD)
    with ReferenceEngine("one") as one, ReferenceEngine("two") as two:
        by_one = qf.lazy(FRAME, engine=one).select(expr)
        by_two = qf.lazy(FRAME, engine=two).select(expr)
        first, second = by_one.collect(), by_two.collect()
        assert not first.equals(second)
        assert by_one.collect().equals(first)
        assert by_one.collect(engine=two).equals(second)


SCRIPT = """
import polars as pl, quail_frames as qf
qf.configure("oracle")
frame = pl.DataFrame({"t": [f"text {i}" for i in range(30)], "n": range(30)})
query = frame.lazy().ai_filter("Is {t} one?", selectivity=0.5).filter(pl.col("n") > 3, qf.ai_score("Is {t} two?") > 0.3)
query = query.with_columns(qf.ai_classify("t", ["red", "green", "blue"]))
print(query.explain())
print(query.collect().to_dicts())
"""


@pytest.mark.skipif(not pytest.importorskip("quail_frames.runtime.engine"), reason="needs the runtime")
def test_plans_and_answers_do_not_depend_on_the_hash_seed() -> None:
    outputs = {
        subprocess.run(
            [sys.executable, "-c", SCRIPT], env={**os.environ, "PYTHONHASHSEED": seed}, capture_output=True, check=True
        ).stdout
        for seed in ("0", "1", "4242")
    }
    assert len(outputs) == 1
