"""Arguments that a query cannot use are named before anything is asked."""

from __future__ import annotations

import os
from inspect import signature
from typing import Any

import polars as pl
import pytest

import quail_frames as qf
from quail_frames.errors import CallError, ModelError, PlanError, QuailFramesError
from quail_frames.lazy import checks, engines
from tests.support.reference_engine import ReferenceEngine

FRAME = pl.DataFrame({"t": ["a", "b", "c", "d", "e", "f", "g"]})


@pytest.mark.parametrize("frame", [5, None, "frame", [1], {"t": ["a"]}, FRAME["t"]], ids=repr)
def test_a_query_is_over_a_frame(frame: Any) -> None:
    for use in (qf.lazy, lambda it: qf.lazy(FRAME).join(it, on="t"), lambda it: qf.lazy(FRAME).ai_join(it, "{t} {u}")):
        with pytest.raises(PlanError, match=r"not (int|NoneType|str|list|dict|Series): pl\.DataFrame"):
            use(frame)


@pytest.mark.parametrize("engine", [5, object(), qf.Engine], ids=str)
def test_an_engine_answers_questions(engine: Any) -> None:
    query = qf.lazy(FRAME).ai_filter("Is {t} good?")
    for use in (lambda: query.collect(engine=engine), lambda: qf.lazy(FRAME, engine=engine)):
        with pytest.raises(PlanError, match="answers no questions"):
            use()


@pytest.mark.parametrize("rows", [0, -1, 1.5, "x", True])
def test_pieces_have_at_least_one_row(reference: ReferenceEngine, rows: Any) -> None:
    query = qf.lazy(FRAME).ai_score("Is {t} good?")
    with pytest.raises(PlanError, match=r"^chunk_size="):
        query.collect_batches(chunk_size=rows)
    assert [piece.height for piece in query.collect_batches(chunk_size=3)] == [3, 3, 1]


@pytest.mark.parametrize("report", [5, {}, qf.RunReport])
def test_a_report_is_a_report(report: Any) -> None:
    with pytest.raises(PlanError, match="cannot be counted into"):
        qf.lazy(FRAME).ai_filter("Is {t} good?").collect(report=report)


@pytest.mark.parametrize("name", [1, b"x", pl.col("x")], ids=str)
def test_an_answer_column_is_named_by_a_str(name: Any) -> None:
    for use in (qf.lazy(FRAME).ai_score, lambda *a, **k: qf.lazy(FRAME).ai_classify("t", ["a", "b"], **k)):
        with pytest.raises(CallError, match="names no column"):
            use("Is {t} good?", name=name)


def test_a_closed_engine_is_not_replaced_by_another() -> None:
    with ReferenceEngine() as engine:
        qf.use_engine(engine)
    try:
        with pytest.raises(QuailFramesError, match="use_engine made the default is closed"):
            qf.lazy(FRAME).ai_filter("Is {t} good?").collect()
        with pytest.raises(QuailFramesError, match="closed engine cannot be the default"):
            qf.use_engine(engine)
    finally:
        qf.configure("oracle")


def test_what_an_engine_takes_the_default_engine_takes_too() -> None:
    try:
        qf.configure("oracle", attention="unified", products="torch")
        assert getattr(engines.default_engine(), "attention", None) == "unified"
        with pytest.raises(ModelError, match="products='blis' is unknown: choose 'auto', 'torch'"):
            qf.configure("oracle", products="blis")
        offered = set(signature(qf.configure).parameters) - {"devices"}
        assert offered == set(signature(qf.Engine).parameters)
    finally:
        qf.configure("oracle")


@pytest.mark.parametrize("device", ["gpu", "cuda:one", "cuda:", "cpu:0", "null:1", "simulated:", "mps", "", 0])
def test_a_device_that_cannot_be_is_refused_before_anything_is_loaded(device: object) -> None:
    with pytest.raises(ModelError, match="is no device: choose 'cpu', 'cuda' or 'cuda:1'"):
        qf.configure("oracle", device=device)  # type: ignore[arg-type]


def test_a_forked_process_is_told_so_instead_of_waiting_forever(
    reference: ReferenceEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    query = qf.lazy(FRAME).ai_filter("Is {t} good?")
    query.collect()
    monkeypatch.setattr(checks, "_ran_in", os.getpid() + 1)  # as the copy of another process sees it
    with pytest.raises(QuailFramesError, match="spawn"):
        query.collect()
