"""What an engine may be told, and what becomes of it when it is closed, copied or forked under a query."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import quail_frames as qf
from quail_frames.errors import ContextOverflowError, ModelError, QuailFramesError
from quail_frames.plan.calls import AiIf
from quail_frames.plan.physical import AnswerOutput, Chain
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine

pl = pytest.importorskip("polars")

USELESS: list[dict[str, Any]] = [
    {"model": None},
    {"model": ""},
    {"model": " "},
    {"model": b"oracle"},
    {"model": ["oracle"]},
    {"device": None},
    {"device": 3},
    {"device": ""},
    {"dtype": "int8"},
    {"dtype": None},
    *({option: value} for option in ("kv_budget", "token_budget", "max_length") for value in (-1, "64MB", 1.5, True)),
    {"token_budget": 0},
    {"max_length": 0},
]


@pytest.mark.parametrize("options", USELESS, ids=str)
def test_an_option_of_no_use_is_named_by_engine_and_configure_alike(options: dict[str, Any]) -> None:
    told = {"model": "oracle", **options}
    ((name, _),) = options.items()
    for make in (Engine, qf.configure):
        with pytest.raises(ModelError, match=f"^{name}="):
            make(**told)


@pytest.mark.parametrize("options", [{"attention": "none"}, {"products": None}], ids=str)
def test_so_is_an_unknown_path(options: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match="is unknown: choose 'auto'"):
        Engine("oracle", **options)


def test_numbers_of_numpy_and_paths_are_taken() -> None:
    with Engine("oracle", kv_budget=np.int64(1 << 20), token_budget=np.int32(64)):  # type: ignore[arg-type]
        pass
    with pytest.raises(ModelError, match="No model"):
        Engine(Path("/nowhere/model.gguf"))


def test_more_memory_than_there_is_is_a_clear_error() -> None:
    with pytest.raises(ModelError, match=r"cannot be allocated.*give a smaller kv_budget"):
        Engine("oracle", kv_budget=10**18)


def chain(engine: Engine) -> Chain:
    planned = engine.resolve(AiIf(Template(("Is ", Slot(0), " good?")), ("text",)), (0,))
    return Chain(("text",), (), (planned,), (0,), None, (AnswerOutput("answer", 0),))


def batches(count: int) -> list[pa.RecordBatch]:
    return [pa.record_batch({"text": [f"text {n} {i}" for i in range(600)]}) for n in range(count)]


def test_closing_an_engine_under_a_query_is_a_clear_error() -> None:
    engine = Engine("oracle", token_budget=4096)
    answers = engine.run(chain(engine), batches(20))
    next(answers)
    engine.close()
    with pytest.raises(QuailFramesError, match="closed while this query ran"):
        list(answers)


def test_an_engine_is_not_pickled() -> None:
    with Engine("oracle") as engine, pytest.raises(TypeError, match=r"open one in the other process"):
        pickle.dumps(engine)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="POSIX only")
def test_an_engine_refuses_to_run_in_a_forked_process_instead_of_waiting_forever() -> None:
    with Engine("oracle") as engine:
        list(engine.run(chain(engine), batches(1)))
        if not (child := os.fork()):
            try:
                engine.run(chain(engine), batches(1))
            except QuailFramesError as error:
                os._exit(0 if "forked" in str(error) else 2)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("policy", ["error", "truncate"])
def test_a_question_that_leaves_no_room_for_a_text_is_an_error_and_not_asked_beyond_the_context(policy: Any) -> None:
    frame = pl.DataFrame({"t": ["a text", "another"]})
    query = qf.lazy(frame).ai_score("Is " + 40 * "really " + "{t} good?", overflow=policy)
    pairs = qf.lazy(frame).ai_join(frame.rename({"t": "u"}), "Is {t} like " + 40 * "really " + "{u}?", overflow=policy)
    with Engine("oracle", max_length=64) as engine:
        for each in (query, pairs):
            report = qf.RunReport()
            with pytest.raises(ContextOverflowError, match="leave no room for a text: shorten the question"):
                each.collect(engine=engine, report=report)
            assert report.asks == 0
