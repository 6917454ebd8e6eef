"""Every row of an endpoint's run is answered once or null with a reason, whatever the endpoint does."""

from __future__ import annotations

import random
import time
from typing import Any

import numpy as np
import polars as pl
import pytest

import quail_frames as qf
from quail_frames.lazy import engines
from quail_frames.runtime.backends.endpoint.reading import read_reply
from quail_frames.runtime.backends.endpoint.transport import proxy_for
from quail_frames.runtime.backends.endpoint.troubles import Retry
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.readouts.answers import AnswerSpec
from tests.support.endpoint import Endpoint, expected, number_in, prompt_of

FAST: dict[str, Any] = {"backend": "openai", "backoff": 0.01, "timeout": 10.0}
LABELS = ["billing", "refund request", "other"]


def opened(server: Endpoint, **options: Any) -> Engine:
    return Engine("some-model", **{**FAST, "base_url": server.url, **options})


def numbered(count: int) -> pl.DataFrame:
    return pl.DataFrame({"text": [f"text {n}" for n in range(count)]})


def even(count: int) -> list[bool]:
    return [n % 2 == 0 for n in range(count)]


@pytest.mark.parametrize("count", [2_000, pytest.param(10_000, marks=pytest.mark.slow)])
def test_calls_with_every_fault_are_answered_once_or_null_with_a_reason(count: int) -> None:
    kinds = ["ok", "429", "429 after 0.01", "500", "hang", "cut", "garbage", "wrong", "empty"]
    weights = [0.8, 0.03, 0.01, 0.042, 0.002, 0.03, 0.03, 0.03, 0.026]
    chance = random.Random(7)
    hopeless = set(chance.sample(range(count), count // 250))
    seen = set[str]()

    def fault(prompt: str, before: int) -> str:
        kind = "500" if number_in(prompt) in hopeless else chance.choices(kinds, weights)[0]
        seen.add(kind)
        return kind

    report = qf.RunReport()
    with Endpoint(fault) as server, opened(server, concurrency=64) as engine:
        started = time.process_time()
        query = qf.lazy(numbered(count)).with_columns(ok=qf.ai_if("Is {text} even?"))
        with pytest.warns(qf.QuailFramesWarning, match=r"answers are null"):
            found = query.collect(engine=engine, report=report)
        seconds = time.process_time() - started
    assert seen == set(kinds)
    assert found["text"].to_list() == numbered(count)["text"].to_list()
    unanswered = {failure.row for failure in report.failures}
    assert hopeless <= unanswered
    assert len(unanswered) == len(report.failures) < len(hopeless) + 20
    assert all(failure.reason and failure.call == "text_if" for failure in report.failures)
    assert found["ok"].to_list() == [None if n in unanswered else n % 2 == 0 for n in range(count)]
    assert report.asks == count
    assert max(server.answered.values()) == 1, "nothing is asked again once it was answered"
    assert len(server.answered) == count - len(unanswered)
    assert seconds < 0.004 * count, "of the processor, the server's included"


def test_a_retry_after_is_waited_for_and_a_backoff_grows() -> None:
    times: list[float] = []

    def fault(prompt: str, before: int) -> str:
        times.append(time.monotonic())
        return ["429 after 0.4", "500", "500", "ok"][before]

    with Endpoint(fault) as server, opened(server, backoff=0.2) as engine:
        query = qf.lazy(numbered(1)).with_columns(ok=qf.ai_if("Is {text} even?"))
        assert query.collect(engine=engine)["ok"].to_list() == [True]
    waits = np.diff(times)
    assert waits[0] >= 0.4
    assert waits[1] >= 0.2
    assert waits[2] >= 0.4


def test_requests_and_tokens_keep_to_their_rates() -> None:
    for limit in ({"requests_per_minute": 1200}, {"tokens_per_minute": 60_000}):
        with Endpoint() as server, opened(server, **limit) as engine:
            started = time.monotonic()
            qf.lazy(numbered(20)).with_columns(qf.ai_if("Is {text} even?")).collect(engine=engine)
            assert time.monotonic() - started > 0.6


def test_no_more_requests_are_under_way_than_the_user_says() -> None:
    with Endpoint(seconds=0.03) as server, opened(server, concurrency=4) as engine:
        qf.lazy(numbered(60)).with_columns(qf.ai_if("Is {text} even?")).collect(engine=engine)
        assert 1 < server.most_under_way <= 4


def test_a_wrong_answer_is_pointed_out_and_asked_again() -> None:
    with Endpoint(lambda prompt, before: "wrong" if before < 2 else "ok") as server, opened(server) as engine:
        query = qf.lazy(numbered(3)).with_columns(label=qf.ai_classify("text", LABELS))
        assert query.collect(engine=engine)["label"].to_list() == LABELS
    again = [request["messages"] for request in server.requests if len(request["messages"]) > 2]
    assert len(again) == 6
    assert all("billing, refund request, other" in messages[-1]["content"] for messages in again)


def test_an_answer_that_is_not_exact_is_no_answer() -> None:
    report = qf.RunReport()
    query = qf.lazy(numbered(2)).with_columns(ok=qf.ai_if("Is {text} even?"))
    with (
        Endpoint(lambda prompt, before: "wrong") as server,
        opened(server) as engine,
        pytest.warns(qf.QuailFramesWarning, match="'Perhaps' is none of the allowed"),
    ):
        found = query.collect(engine=engine, report=report)
    assert found["ok"].to_list() == [None, None]
    assert len(server.requests) == 6


def test_chains_joins_limits_and_equal_rows_ask_only_what_they_need() -> None:
    frame = numbered(40)
    with Endpoint() as server, opened(server, concurrency=4) as engine:
        query = qf.lazy(frame).filter(qf.ai_if("Is {text} even?")).with_columns(label=qf.ai_classify("text", LABELS))
        found = query.collect(engine=engine)
        assert found["label"].to_list() == [LABELS[n % 3] for n in range(0, 40, 2)]
        assert len(server.requests) == 60, "a row that fails is asked nothing more"
        server.requests.clear()
        repeated = pl.concat([frame.head(3)] * 50)
        qf.lazy(repeated).with_columns(qf.ai_if("Is {text} even?")).collect(engine=engine)
        assert len(server.requests) == 3, "equal rows are asked once"
        server.requests.clear()
        assert qf.lazy(numbered(1000)).filter(qf.ai_if("Is {text} even?")).head(4).collect(engine=engine).height == 4
        assert len(server.requests) < 40, "a limit stops early"
        terms = pl.DataFrame({"term": ["a", "b", "c"]})
        pairs = qf.lazy(frame.head(6)).ai_join(terms.lazy(), "Does {text} have {term}?", where=pl.col("term") != "b")
        assert pairs.collect(engine=engine).rows() == [(f"text {n}", t) for n in (0, 2, 4) for t in ("a", "c")]
        assert sum("Does {0} have {1}?" in prompt_of(request) for request in server.requests) == 12


def test_scores_and_probabilities_come_from_log_probabilities() -> None:
    with Endpoint(owner="vllm") as server, opened(server) as engine:
        query = qf.lazy(numbered(4)).with_columns(
            score=qf.ai_score("Is {text} even?"), label=qf.ai_classify("text", ["a", "b"], probabilities=True)
        )
        found = query.collect(engine=engine)
    assert found["score"].to_list() == pytest.approx([0.75 / 0.875, 0.125 / 0.875] * 2)
    first = found["label"].struct.field("probabilities").struct.field("a").to_list()
    assert first == pytest.approx([0.75 / 0.8125, 0.0625 / 0.8125] * 2), (
        "an answer that is not listed gets what is left"
    )
    assert all(request["top_logprobs"] == 20 for request in server.requests)
    assert server.requests[0]["structured_outputs"] == {"choice": ["TRUE", "FALSE"]}


def test_an_endpoint_without_log_probabilities_gives_no_scores_and_says_so() -> None:
    with Endpoint(unknown=("logprobs",)) as server, opened(server) as engine:
        with pytest.raises(qf.ModelError, match=r"gives no log-probabilities.*ai_if"):
            qf.lazy(numbered(4)).with_columns(score=qf.ai_score("Is {text} even?")).collect(engine=engine)
        query = qf.lazy(numbered(4)).with_columns(ok=qf.ai_if("Is {text} even?"))
        assert query.collect(engine=engine)["ok"].to_list() == even(4)


@pytest.mark.parametrize("entries", [[{}], [{"token": "TRUE"}], [None], [{"token": 1, "logprob": 0.0}]])
def test_malformed_log_probabilities_are_asked_for_again(entries: list[Any]) -> None:
    content = {"choices": [{"message": {"content": "TRUE"}, "logprobs": {"content": entries}}]}
    with pytest.raises(Retry, match="log-probabilities are malformed"):
        read_reply(content, AnswerSpec.of((("TRUE",), ("FALSE",)), scored=True))


@pytest.mark.parametrize(
    ("owner", "word"), [("vllm", "structured_outputs"), ("llamacpp", "grammar"), ("openai", "response_format")]
)
def test_answers_are_constrained_in_the_words_of_the_server(owner: str, word: str) -> None:
    for unknown in ((), (word,)):
        with Endpoint(owner=owner, unknown=unknown) as server, opened(server) as engine:
            query = qf.lazy(numbered(8)).with_columns(ok=qf.ai_if("Is {text} even?"))
            assert query.collect(engine=engine)["ok"].to_list() == even(8)
        assert word in server.requests[0]
        assert (word in server.requests[-1]) == (not unknown), "a word that the server refuses is not said again"


def test_completions_and_further_fields_are_sent_where_the_user_says() -> None:
    with Endpoint() as server, opened(server, api="completions", extra_body={"top_k": 1}) as engine:
        query = qf.lazy(numbered(4)).with_columns(ok=qf.ai_if("Is {text} even?"), s=qf.ai_score("Is {text} even?"))
        found = query.collect(engine=engine)
    assert found["ok"].to_list() == even(4)
    assert found["s"].to_list() == pytest.approx([0.75 / 0.875, 0.125 / 0.875] * 2)
    request = min(server.requests, key=lambda request: request["prompt"])
    assert request["prompt"].startswith("DOCUMENT:\ntext 0\n\nEvaluate TRUE or FALSE")
    assert request["top_k"] == 1
    assert expected(request["prompt"]) == "TRUE"


def test_a_server_that_is_down_and_a_wrong_key_stop_at_once() -> None:
    with Endpoint() as server:
        url = server.url
    with pytest.raises(qf.ModelError, match=r"Nobody answers at http://127\.0\.0\.1"):
        Engine("some-model", **{**FAST, "base_url": url})
    with Endpoint(key="secret") as server:
        with pytest.raises(qf.ModelError, match="refuses the key"):
            opened(server, api_key="guess")
        with opened(server, api_key="secret") as engine:
            query = qf.lazy(numbered(2)).with_columns(ok=qf.ai_if("Is {text} even?"))
            assert query.collect(engine=engine)["ok"].to_list() == [True, False]
            server.key = "changed"
            with pytest.raises(qf.ModelError, match="refuses the key") as raised:
                qf.lazy(numbered(200)).with_columns(ok=qf.ai_if("Is {text} odd?")).collect(engine=engine)
            assert "secret" not in str(raised.value)
            assert "secret" not in repr(engine.identity)


def test_a_server_that_dies_in_the_middle_ends_the_run() -> None:
    with Endpoint(seconds=0.01) as server:
        engine = opened(server, concurrency=4, retries=1)
        batches = qf.lazy(numbered(5000)).with_columns(ok=qf.ai_if("Is {text} even?")).collect_batches(engine=engine)
        next(batches)
    with engine, pytest.raises(qf.ModelError, match="has not answered any of the last 16 questions"):
        list(batches)


def test_an_endpoint_that_refuses_everything_ends_the_run() -> None:
    with Endpoint(lambda prompt, before: "418") as server, opened(server) as engine:
        with pytest.raises(qf.ModelError, match="HTTP 418: not now"):
            qf.lazy(numbered(100)).with_columns(ok=qf.ai_if("Is {text} even?")).collect(engine=engine)
        assert len(server.requests) < 100


def test_the_environments_proxy_is_found_once(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"https_proxy": "http://proxy:3128", "no_proxy": "localhost,inside.example"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("http_proxy", raising=False)
    assert proxy_for("https://api.example/v1") == "http://proxy:3128"
    assert proxy_for("https://inside.example/v1") is None
    assert proxy_for("http://api.example/v1") is None


def test_closing_a_run_closes_its_connections() -> None:
    hanging = Endpoint(lambda prompt, before: "ok" if number_in(prompt) < 30 else "hang")
    with hanging as server, opened(server, concurrency=8, timeout=60.0) as engine:
        query = qf.lazy(numbered(100)).with_columns(ok=qf.ai_if("Is {text} even?"))
        batches = query.collect_batches(engine=engine)
        assert next(batches)["ok"][0] is True
        batches.close()
        deadline = time.monotonic() + 5
        while server.under_way and time.monotonic() < deadline:
            time.sleep(0.01)
        assert server.under_way == 0
        assert engine.memory.contexts.pool.free == engine.memory.pages
    assert hanging.open == 0


def test_options_that_cannot_be_are_refused() -> None:
    for options, message in [
        ({"base_url": "localhost:8000"}, "is no HTTP address"),
        ({"base_url": 8000}, "base_url= takes a str"),
        ({"base_url": "http://x", "concurrency": 0}, "concurrency=0 is no number from 1 on"),
        ({"base_url": "http://x", "concurrency": 2.5}, "concurrency=2.5 is no number from 1 on"),
        ({"base_url": "http://x", "timeout": "soon"}, "timeout='soon' is no number from 0.001 on"),
        ({"base_url": "http://x", "extra_body": 3}, "extra_body=3: give a mapping"),
        ({"base_url": "http://x", "requests_per_minute": 0}, "would never ask"),
        ({"base_url": "http://x", "api": "chats"}, "choose 'chat', 'completions'"),
    ]:
        for refuses in (Engine, qf.configure):
            with pytest.raises(qf.ModelError, match=message):
                refuses("some-model", backend="openai", **options)  # type: ignore[operator]


def test_scorings_that_need_the_tokens_are_refused_with_advice() -> None:
    with Endpoint() as server, opened(server) as engine:
        for options, message in [
            ({"scoring": "trie_tree"}, "an endpoint does not give"),
            ({"scoring": "trie_decode", "probabilities": True}, "scoring='letters'"),
        ]:
            with pytest.raises(qf.CallError, match=message):
                query = qf.lazy(numbered(2)).with_columns(label=qf.ai_classify("text", LABELS, **options))
                query.collect(engine=engine)


def test_configure_makes_an_endpoint_the_default_and_keeps_its_key_to_itself() -> None:
    with Endpoint(key="secret") as server:
        options: dict[str, Any] = {"base_url": server.url, "api_key": "secret", "extra_body": {"top_k": 1}}
        qf.configure("some-model", backend="openai", **options)
        try:
            found = numbered(4).with_columns(ok=pl.col("text").ai.if_("Is it even?"))
            assert found["ok"].to_list() == even(4)
            first = qf.default_engine()
            qf.configure("oracle")
            qf.configure("some-model", backend="openai", **options)
            assert qf.default_engine() is first
            assert "secret" not in repr(engines._options)
        finally:
            qf.close_default_engine()
            qf.configure("oracle")
    with pytest.raises(qf.ModelError, match="kv_budget= has no effect"):
        qf.configure("some-model", backend="openai", kv_budget=1 << 20)
