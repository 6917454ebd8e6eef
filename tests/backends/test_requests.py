"""An engine behind requests gives the native runtime's answers, asks nothing twice, and says what was not answered."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import polars as pl
import pytest
from hypothesis import HealthCheck, given, note, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.runtime.engine import Engine
from tests.support.oracle_asker import OracleAsker, behind_requests
from tests.support.pipelines import Step, frames, pipelines

BYTES_PER_PAGE = 8 * 16
"""Of the oracle."""
LABELS = ["lost card", "lost phone", "stolen card", "other"]
SLOW = [HealthCheck.too_slow]


@settings(max_examples=40, deadline=None, suppress_health_check=SLOW)
@given(data=st.data(), frame=frames(), pipeline=pipelines())
def test_any_query_gives_what_the_native_runtime_gives(
    data: st.DataObject, frame: pl.DataFrame, pipeline: tuple[str, Step]
) -> None:
    name, steps = pipeline
    note(name)
    asker = OracleAsker(data.draw(st.integers(0, 9)), data.draw(st.sampled_from([1, 3, 50])), data.draw(st.booleans()))
    kv_budget = data.draw(st.sampled_from([0, 5 * BYTES_PER_PAGE, None]))
    query = steps(qf.lazy(frame))
    with Engine("oracle", kv_budget=1 << 20) as native, behind_requests(asker, kv_budget) as engine:
        assert_frame_equal(query.collect(engine=engine), query.collect(engine=native), check_exact=True)
        assert engine.memory.contexts.pool.free == engine.memory.pages, "all pages are free when a query ends"


@settings(max_examples=25, deadline=None, suppress_health_check=SLOW)
@given(data=st.data(), texts=st.lists(st.text(alphabet="ab c\né", max_size=30), max_size=12))
def test_every_label_scoring_gives_what_the_native_runtime_gives(data: st.DataObject, texts: list[str]) -> None:
    scoring = data.draw(st.sampled_from(["letters", "trie_decode", "trie_tree"]))
    layout = data.draw(st.sampled_from(["document_first", "question_first"]))
    shown = scoring != "trie_decode" and data.draw(st.booleans())
    label = qf.ai_classify("text", LABELS, scoring=scoring, layout=layout, probabilities=shown)
    query = qf.lazy(pl.DataFrame({"text": texts}, schema={"text": pl.String})).with_columns(
        label=label, also=qf.ai_if("Is {text} long?")
    )
    asker = OracleAsker(data.draw(st.integers(0, 9)), data.draw(st.sampled_from([1, 3, 50])))
    kv_budget = data.draw(st.sampled_from([0, 5 * BYTES_PER_PAGE, None]))
    with Engine("oracle", kv_budget=1 << 20) as native, behind_requests(asker, kv_budget) as engine:
        assert_frame_equal(query.collect(engine=engine), query.collect(engine=native), check_exact=True)


def test_equal_rows_are_asked_once_and_dropped_rows_no_more() -> None:
    frame = pl.DataFrame({"text": [*map(str, range(200)), None] * 3})
    query = qf.lazy(frame).filter(qf.ai_if("Is {text} one?")).filter(qf.ai_if("Is {text} two?"))
    with behind_requests(asker := OracleAsker()) as engine:
        report = qf.RunReport()
        query.collect(engine=engine, report=report)
    assert len(asker.asked) == len(set(asker.asked)) == report.asks
    assert 200 <= report.asks < 360


def test_no_more_asks_are_under_way_than_the_engine_likes() -> None:
    frame = pl.DataFrame({"text": [f"text {n} " * (1 + n % 9) for n in range(400)]})
    with behind_requests(asker := OracleAsker(most_asks=8)) as engine:
        qf.lazy(frame).with_columns(a=qf.ai_if("Is {text} one?"), b=qf.ai_score("Is {text} two?")).collect(
            engine=engine
        )
    assert len(asker.asked) == 800
    assert asker.most_seen <= 2 * 8


def test_a_limit_and_a_semi_join_stop_early() -> None:
    frame = pl.DataFrame({"text": [f"text {n}" for n in range(2000)]})
    with behind_requests(asker := OracleAsker(most_asks=8)) as engine:
        found = qf.lazy(frame).filter(qf.ai_if("Is {text} one?", selectivity=0.5)).head(5).collect(engine=engine)
        assert found.height == 5
        assert len(asker.asked) < 60
        asker.asked.clear()
        terms = pl.DataFrame({"term": [f"term {n}" for n in range(500)]})
        left = qf.lazy(frame.head(3))
        assert left.ai_join(terms.lazy(), "Does {text} have {term}?", how="semi").collect(engine=engine).height == 3
        assert len(asker.asked) < 60


def test_what_is_not_answered_is_null_and_reported_with_its_row() -> None:
    frame = pl.DataFrame({"text": [f"text {n}" for n in range(30)]})
    query = qf.lazy(frame).with_columns(
        ok=qf.ai_if("Is {text} one?"), label=qf.ai_classify("text", LABELS, scoring="trie_decode")
    )
    with (
        Engine("oracle", kv_budget=1 << 20) as native,
        behind_requests(OracleAsker(fails=lambda n: "HTTP 500" if n % 5 == 0 else None)) as e,
    ):
        report = qf.RunReport()
        with pytest.warns(qf.QuailFramesWarning, match=r"answers are null because .* HTTP 500"):
            found = query.collect(engine=e, report=report)
        truth = query.collect(engine=native)
        assert e.memory.contexts.pool.free == e.memory.pages
    failures = pl.DataFrame(report.failures)
    assert set(failures["reason"]) == {"HTTP 500"}
    for name, call in (("ok", "text_if"), ("label", "text_label")):
        rows = failures.filter(call=call)["row"].to_list()
        nulls = found.with_row_index().filter(pl.col(name).is_null())["index"].to_list()
        assert sorted(rows) == nulls != []
        same = found.with_row_index().filter(pl.col(name).is_not_null())
        assert same[name].to_list() == truth[same["index"]][name].to_list()
    assert "questions not answered, null" in str(report)


def test_a_filter_drops_a_row_that_was_not_answered_and_a_pair_is_no_pair() -> None:
    frame, terms = pl.DataFrame({"text": ["a", "b"]}), pl.DataFrame({"term": ["x", "y", "z"]})
    with behind_requests(OracleAsker(fails=lambda n: "timed out")) as engine:
        report = qf.RunReport()
        with pytest.warns(qf.QuailFramesWarning):
            assert qf.lazy(frame).filter(qf.ai_if("Is {text} one?")).collect(engine=engine, report=report).height == 0
            pairs = qf.lazy(frame).ai_join(terms.lazy(), "Does {text} have {term}?")
            assert pairs.collect(engine=engine, report=report).height == 0
    assert [failure.row for failure in report.failures[:2]] == [0, 1]
    assert sorted((failure.row, failure.partner) for failure in report.failures[2:]) == [
        (anchor, partner) for anchor in range(2) for partner in range(3)
    ]


def test_an_error_of_the_engine_ends_the_run_and_frees_its_memory() -> None:
    asker = OracleAsker(fails=lambda n: qf.ModelError("gone") if n == 20 else None)
    frame = pl.DataFrame({"text": [f"text {n}" for n in range(300)]})
    with behind_requests(asker) as engine:
        with pytest.raises(qf.ModelError, match="gone"):
            qf.lazy(frame).with_columns(qf.ai_if("Is {text} one?")).collect(engine=engine)
        assert engine.memory.contexts.pool.free == engine.memory.pages


def test_an_unknown_backend_or_option_is_refused_by_name() -> None:
    for options, message in [
        ({"backend": "vlm"}, "no backend 'vlm'"),
        ({"backend": "openai", "kv_budget": 1 << 20}, "kv_budget= has no effect with backend='openai'"),
        ({"backend": "openai", "kernels": "torch"}, "kernels= has no effect with backend='openai'"),
        ({"backend": "vllm", "schedule": "later"}, "schedule='later': choose 'pipelined' or 'stages'"),
        ({"backend": "vllm", "engine_args": "fast"}, "engine_args='fast': give a mapping"),
        ({"backend": "openai", "device": "cuda"}, "device= has no effect"),
        ({"backend": "openai", "max_length": 100}, "the server counts the tokens"),
        ({"backend": "openai", "token_budget": 100}, "concurrency="),
        ({"backend": "vllm", "attention": "tree"}, "engine_args"),
        ({"concurrency": 3}, "an option of backend='openai', not of backend='native'"),
        ({"backend": "vllm", "base_url": "http://x"}, "an option of backend='openai', not of backend='vllm'"),
        ({"backend": "openai", "concurency": 3}, "did you mean concurrency="),
    ]:
        with pytest.raises(qf.ModelError, match=message):
            Engine("some-model", **options)  # type: ignore[arg-type]


def test_runs_of_several_threads_share_one_engine() -> None:
    frame = pl.DataFrame({"text": [f"text {n}" for n in range(100)]})
    queries = [qf.lazy(frame).with_columns(ok=qf.ai_if(f"Is {{text}} {n}?")) for n in range(4)]
    with (
        Engine("oracle", kv_budget=1 << 20) as native,
        behind_requests(OracleAsker()) as engine,
        ThreadPoolExecutor(4) as threads,
    ):
        for found, query in zip(threads.map(lambda q: q.collect(engine=engine), queries), queries, strict=True):
            assert_frame_equal(found, query.collect(engine=native))
