"""Every query of the workloads at a tiny size, on the oracle: both front ends, one plan, the same rows."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import numpy as np
import polars as pl
import pytest

import quail_frames as qf
from benchmarks import data
from benchmarks.minimum import distinct_prefixes, minimum_tokens
from benchmarks.workloads import __main__ as command
from benchmarks.workloads import tables
from benchmarks.workloads.engines import open_engine
from benchmarks.workloads.measure import Bench, compare, planned, run_query, same_rows
from benchmarks.workloads.query import Query
from benchmarks.workloads.record import Recorder
from benchmarks.workloads.suite import QUERIES
from benchmarks.workloads.tables import FULL, SLICE, TINY, Size, table
from quail_frames.cost.devices import device
from quail_frames.runtime.tokens.ragged import Ragged

SHAPES = pytest.mark.parametrize("query", QUERIES, ids=lambda query: query.id)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    """The oracle, watched."""
    with open_engine("oracle", "tiny") as engine:
        yield Bench(engine, Recorder.on(engine), device("h100-sxm"), device("h100-sxm"), engine.shape)


@pytest.fixture(autouse=True)
def fresh_sources() -> Iterator[None]:
    """No table of one test's folders is remembered in another's."""
    tables.source.cache_clear()
    yield
    tables.source.cache_clear()


def frames_of(query: Query, size: Size = TINY) -> dict[str, pl.DataFrame]:
    return {name: table(name, size) for name in query.tables}


def test_there_is_a_query_for_every_shape() -> None:
    assert len(QUERIES) >= 30
    assert len({query.id for query in QUERIES}) == len(QUERIES)
    assert {query.id.split("-")[0] for query in QUERIES} == {"IMDB", "FAERS", "SCIFACT", "BANK", "SWE", "CUAD"}
    assert {query.dialect for query in QUERIES} == {"snowflake", "bigquery"}


@SHAPES
def test_sql_and_python_are_one_logical_plan(query: Query) -> None:
    frames = frames_of(query)
    python, sql = (planned(query, front, frames) for front in ("python", "sql"))
    assert python.explain() == sql.explain()
    assert python._plan == sql._plan
    assert python._optimized() == sql._optimized()
    assert python.collect_schema() == sql.collect_schema()


@SHAPES
def test_sql_and_python_run_one_physical_plan_to_the_same_rows(query: Query, bench: Bench) -> None:
    python, sql = compare(bench, query, frames_of(query))
    assert python.record.plans == sql.record.plans
    assert python.figures.asks == sql.figures.asks > 0
    assert python.figures.sql_equals_python
    assert same_rows(python.frame, sql.frame, ordered=query.ordered)
    assert python.figures.regret_tokens == 0


@pytest.fixture(scope="module")
def null_bench() -> Iterator[Bench]:
    """The model's own tokenizer and no model, watched; a context that some of the texts are longer than."""
    with open_engine("null", "slice") as engine:
        yield Bench(engine, Recorder.on(engine), device("h100-sxm"), device("h100-sxm"), engine.shape)


@SHAPES
def test_next_to_no_token_is_computed_twice(query: Query, null_bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "folders", lambda: (data.ROOT / "examples" / "data",))
    size = Size("slice", rows=24, characters=700, turns=6)
    figures = run_query(null_bench, query, "python", frames_of(query, size)).figures
    assert figures.asks > 0 and figures.regret_tokens == 0
    assert figures.fresh_tokens <= 1.02 * figures.minimum_tokens


def test_the_recorded_minimum_is_the_prefix_tree_of_the_prompts(bench: Bench) -> None:
    reviews = pl.DataFrame({"text": ["a film about a dog", "a film about a cat", "a film about a dog"]})
    frame = qf.lazy(reviews).select(qf.ai_if("Is it good? {text}"), qf.ai_score("Is it long? {text}").alias("long"))
    bench.recorder.take()
    frame.collect(engine=bench.engine)
    encode = bench.engine.tokenizer.encode
    words = "\n\nEvaluate TRUE or FALSE for the following question: "
    asked = [(text, question) for text in reviews["text"].unique() for question in ("Is it good?", "Is it long?")]
    lists = [
        np.concatenate([*map(np.array, encode(["DOCUMENT:\n", text, words, question + "\nANSWER:"]).lists())])
        for text, question in asked
    ]
    rows = np.unique([text for text, _ in asked], return_inverse=True)[1]
    assert bench.recorder.take().prompts.minimum() == minimum_tokens(Ragged.of(lists), rows)


def test_nothing_is_shared_across_rows_behind_their_documents() -> None:
    lists = Ragged.of([[1] * 20, [1] * 20, [1] * 21])
    assert distinct_prefixes(lists, np.array([0, 0, 0])) == 21
    assert distinct_prefixes(lists, np.array([0, 1, 1])) == 41


def test_texts_longer_than_the_context_are_cut_or_null(bench: Bench) -> None:
    by_id = {query.id: query for query in QUERIES}
    long = Size("tiny", rows=6, characters=400, turns=6)
    nulls = run_query(bench, by_id["CUAD-1"], "python", frames_of(by_id["CUAD-1"], long)).figures
    cuts = run_query(bench, by_id["CUAD-2"], "sql", frames_of(by_id["CUAD-2"], long)).figures
    assert nulls.overflowed > 0 and nulls.truncated == 0
    assert cuts.truncated > 0 and cuts.overflowed == 0


@pytest.mark.parametrize("name", tables.MAKERS)
def test_a_table_has_an_id_and_the_rows_of_its_size(name: str) -> None:
    small, slice_ = table(name, TINY), table(name, SLICE)
    assert 0 < small.height <= 4
    assert small["id"].n_unique() == small.height
    assert slice_.height <= table(name, FULL).height
    assert small.schema == slice_.schema == table(name, FULL).schema


def test_traces_grow_and_turns_are_what_each_adds() -> None:
    traces, turns = table("traces", SLICE), table("turns", FULL)
    for (run,), part in traces.group_by("trajectory_id"):
        texts = part.sort("turn_index")["trace"].to_list()
        assert all(later.startswith(earlier) for earlier, later in pairwise(texts)), run
        assert len(set(texts)) == len(texts)
    joined = (
        turns.sort("turn_index").group_by("trajectory_id").agg(pl.col("message").str.join("")).sort("trajectory_id")
    )
    last = table("traces", FULL).sort("turn_index").group_by("trajectory_id").agg(pl.col("trace").last())
    assert joined["message"].to_list() == last.sort("trajectory_id")["trace"].to_list()


def test_a_table_that_is_nowhere_is_named_with_the_variable_that_says_where(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(data, "folders", lambda: (tmp_path,))
    with pytest.raises(FileNotFoundError, match=f"no table 'reviews' in .*; set {data.VARIABLE} to the folder"):
        table("reviews", TINY)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """The command with the oracle, without measuring this machine."""
    monkeypatch.setattr(command, "here", lambda options, shape: device("h100-sxm"))
    monkeypatch.setattr(command, "open_engine", lambda *_: open_engine("oracle", "tiny"))


def test_the_command_writes_figures(tmp_path: Path, quick: None) -> None:
    command.main(["--only", "IMDB-4,FAERS-1", "--device", "null", "--rows", "3", "--json", str(tmp_path / "out.json")])
    found = json.loads((tmp_path / "out.json").read_text())["queries"]
    assert [each["id"] for each in found] == ["IMDB-4", "FAERS-1"]
    wanted = {"id", "rows", "asks", "fresh_tokens", "minimum_tokens", "regret_tokens", "seconds", "sol_seconds"}
    assert wanted | {"sql_equals_python"} <= set(found[0])
    assert found[0]["sql_equals_python"] is True


@pytest.mark.slow
def test_the_command_draws_a_picture(tmp_path: Path, quick: None) -> None:
    pytest.importorskip("matplotlib")
    command.main(["--only", "IMDB-4", "--front", "sql", "--rows", "3", "--plot", str(tmp_path / "out.png")])
    assert (tmp_path / "out.png").read_bytes().startswith(b"\x89PNG")


def test_a_family_names_all_its_queries() -> None:
    assert {query.id for query in command.chosen("SWE")} == {f"SWE-{number}" for number in range(1, 6)}
    with pytest.raises(SystemExit, match="no query is called 'IMDB-99'"):
        command.chosen("IMDB-99")
