"""Plans through vLLM: its engine is driven rightly, and where it is installed its answers are the native ones."""

from __future__ import annotations

import dataclasses
import time
from importlib.util import find_spec
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.runtime.backends.asking import WholeAsk
from quail_frames.runtime.backends.options import NativeOptions
from quail_frames.runtime.backends.scheduler import RequestModel
from quail_frames.runtime.backends.vllm import MOST_IDS, Pump, VllmAsker, open_vllm, shape_of
from quail_frames.runtime.batch import ReadoutSpec
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.loading import open_model
from quail_frames.runtime.oracle import logits_of, state_of

LABELS = ["lost card", "lost phone", "stolen card", "other"]


class OracleInVllmsPlace:
    """Stands where vLLM's engine stands, which the tests' environment does not have; answers as the oracle does."""

    model_config = SimpleNamespace(max_model_len=1 << 16)

    def __init__(self, batch: int = 3, dies_after: int | None = None, seconds: float = 0.0) -> None:
        self.batch, self.dies_after, self.seconds = batch, dies_after, seconds
        self.requests: dict[str, tuple[list[int], list[int]]] = {}
        self.steps = self.aborted = self.most_ids = 0

    def add_request(self, name: str, prompt: dict[str, list[int]], ids: list[int]) -> None:
        self.most_ids = max(self.most_ids, len(ids))
        self.requests[name] = (prompt["prompt_token_ids"], ids)

    def abort_request(self, names: list[str]) -> None:
        for name in names:
            del self.requests[name]
            self.aborted += 1

    def step(self) -> list[Any]:
        self.steps += 1
        time.sleep(self.seconds)
        if self.dies_after is not None and self.steps > self.dies_after:
            raise RuntimeError("out of memory")
        done = list(self.requests)[: self.batch]
        return [self.output(name, *self.requests.pop(name)) for name in done]

    @staticmethod
    def output(name: str, prompt: list[int], ids: list[int]) -> Any:
        logits = logits_of(state_of(np.array(prompt, dtype=np.int32)), np.array(ids, dtype=np.int32))[0]
        likely = {token: SimpleNamespace(logprob=float(value)) for token, value in zip(ids, logits, strict=True)}
        said = [SimpleNamespace(logprobs=[likely])]
        return SimpleNamespace(request_id=name, outputs=said, prompt_token_ids=prompt, num_cached_tokens=2)


def behind(place: OracleInVllmsPlace, most_tokens: int = 300, staged: bool = False) -> Engine:
    asker = VllmAsker(lambda: Pump(place, list), most_tokens, staged)
    opened = open_model("oracle", device="cpu", dtype="auto")
    return Engine(dataclasses.replace(opened, model=RequestModel(asker)))


@settings(max_examples=8, deadline=None)
@given(st.integers(1, 40), st.integers(1, 9), st.booleans(), st.sampled_from(["letters", "trie_decode"]))
def test_answers_are_those_of_the_native_runtime(rows: int, batch: int, staged: bool, scoring: Any) -> None:
    frame = pl.DataFrame({"text": [f"text {n} " * (n % 5) for n in range(rows)]})
    query = (
        qf.lazy(frame)
        .filter(qf.ai_if("Is {text} one?", selectivity=0.5))
        .with_columns(score=qf.ai_score("Is {text} two?"), label=qf.ai_classify("text", LABELS, scoring=scoring))
    )
    with Engine("oracle", kv_budget=1 << 20) as native, behind(OracleInVllmsPlace(batch), staged=staged) as engine:
        assert_frame_equal(query.collect(engine=engine), query.collect(engine=native))


def test_more_tokens_than_a_request_may_name_are_read_in_several() -> None:
    place = OracleInVllmsPlace()
    prompts = (np.arange(5, dtype=np.int32), np.arange(9, dtype=np.int32))
    ids = np.arange(3 * MOST_IDS - 7, dtype=np.int32)
    replies: SimpleQueue[Any] = SimpleQueue()
    asker = VllmAsker(lambda: Pump(place, list), 100, staged=False)
    asker.ask([WholeAsk(prompts, ReadoutSpec(ids, normalize=True))], lambda number, reply: replies.put(reply))
    reply = replies.get(timeout=60)
    asker.close()
    expected = np.concatenate([logits_of(state_of(prompt), ids) for prompt in prompts])
    assert place.most_ids == MOST_IDS
    assert np.array_equal(reply.logits[:, :-1], expected)
    assert not reply.logits[:, -1].any(), "log-probabilities are normalized"
    assert (reply.fresh, reply.reused) == (3 * (5 + 9 - 4), 3 * 4)


def test_a_closed_run_leaves_nothing_in_vllm() -> None:
    place = OracleInVllmsPlace(batch=4, seconds=0.05)
    frame = pl.DataFrame({"text": [f"text {n}" for n in range(300)]})
    with behind(place, most_tokens=2000) as engine:
        batches = qf.lazy(frame).with_columns(ok=qf.ai_if("Is {text} one?")).collect_batches(engine=engine)
        next(batches)
        batches.close()
        again = qf.lazy(frame.head(3)).with_columns(ok=qf.ai_if("Is {text} one?"))
        assert again.collect(engine=engine).height == 3
        assert engine.memory.contexts.pool.free == engine.memory.pages
    assert not place.requests
    assert place.aborted > 0


def test_an_error_of_vllm_ends_the_run() -> None:
    with behind(OracleInVllmsPlace(dies_after=2)) as engine:
        query = qf.lazy(pl.DataFrame({"text": [f"text {n}" for n in range(50)]}))
        with pytest.raises(qf.ModelError, match="vLLM has stopped: out of memory"):
            query.with_columns(ok=qf.ai_if("Is {text} one?")).collect(engine=engine)


@pytest.mark.parametrize("method", ["add_request", "abort_request"])
def test_an_engine_that_is_dead_ends_the_run_and_every_later_one(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def dead(*_: Any) -> None:
        raise RuntimeError("the engine is dead")

    place = OracleInVllmsPlace(batch=1, seconds=0.01)
    query = qf.lazy(pl.DataFrame({"text": [f"text {n}" for n in range(50)]})).with_columns(
        ok=qf.ai_if("Is {text} one?")
    )
    with behind(place) as engine:
        batches = query.collect_batches(engine=engine)
        next(batches)
        monkeypatch.setattr(place, method, dead)
        batches.close()
        if method == "abort_request":
            monkeypatch.undo()
            assert query.collect(engine=engine).height == 50, "the thread that owns vLLM still serves"
        else:
            for _ in range(2):
                with pytest.raises(qf.ModelError, match="the engine is dead"):
                    query.collect(engine=engine)


def test_a_query_whose_engine_was_closed_says_so_instead_of_waiting_for_ever() -> None:
    model = RequestModel(VllmAsker(lambda: Pump(OracleInVllmsPlace(), list), 100, staged=False))
    model.close()
    with pytest.raises(qf.QuailFramesError, match="the engine was closed while this query ran"):
        model.ask([], lambda number, reply: None)


def test_an_absent_vllm_and_a_schedule_that_is_none_are_refused_with_advice(tmp_path: Any) -> None:
    with pytest.raises(qf.ModelError, match="choose 'pipelined' or 'stages'"):
        Engine(str(tmp_path), backend="vllm", schedule="staged")
    if find_spec("vllm") is None:
        with pytest.raises(qf.ModelError, match=r"needs the package vllm: pip install vllm\."):
            Engine(str(tmp_path), backend="vllm")


def test_a_folder_without_a_config_is_named(tmp_path: Any) -> None:
    with pytest.raises(qf.ModelError, match=r"config\.json is missing"):
        open_vllm(str(tmp_path), NativeOptions(), {})


def test_a_shape_is_read_from_any_config() -> None:
    fields = {"hidden_size": 64, "num_attention_heads": 4, "num_hidden_layers": 2, "vocab_size": 100}
    assert shape_of(fields).head_dim == shape_of({"text_config": fields}).head_dim == 16
    assert shape_of({**fields, "num_key_value_heads": 1}).kv_heads == 1


@pytest.mark.peer
@pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed here: docs/backends.md says how")
def test_vllm_and_the_native_runtime_agree() -> None:
    from benchmarks.backend_agreement import main

    main(["--rows", "30", "--dtype", "float32"])
