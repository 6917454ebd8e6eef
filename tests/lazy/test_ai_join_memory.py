"""What an AI join reads from KV memory: its anchor, once for all pairs and for what is asked next."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.plan.calls import AiIf, AiScore
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected import expected_answer
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.ragged import common_start
from tests.lazy.joins import PAGE_BYTES

REVIEWS = pl.DataFrame({"review": [f"review {n} " + "word " * (20 + n % 3) for n in range(12)], "stars": range(12)})
ASPECTS = pl.DataFrame({"aspect": ["plot", "acting", "music"], "weight": [3, 1, 2]})
DISCUSSES = "Does {review} discuss {aspect}?"


def pair_question(kind: type, words: tuple[str, str, str], first: str, second: str) -> Any:
    return kind(Template((words[0], Slot(0), words[1], Slot(1), words[2])), (first, second))


@pytest.mark.parametrize("anchor", ["left", "right"])
@pytest.mark.parametrize("kv_budget", [1 << 20, 30 * PAGE_BYTES])
def test_calls_about_a_pair_are_laid_out_on_the_joins_anchor(anchor: str, kv_budget: int) -> None:
    with Engine("oracle", kv_budget=kv_budget, token_budget=600) as engine:
        joined = qf.lazy(REVIEWS, engine=engine).ai_join(ASPECTS, DISCUSSES, anchor=anchor)
        renamed = joined.rename({"review": "body"}).with_columns(short=pl.col("body").str.head(30))
        got = (
            renamed.ai_score("How much does {body} say on {aspect}?", name="s")
            .ai_score("Is {short} {aspect}?")
            .collect()
        )
        assert engine.memory.contexts.pool.free == engine.memory.pages
        slot = (0,) if anchor == "left" else (1,)
        match = engine.resolve(pair_question(AiIf, ("Does ", " discuss ", "?"), "review", "aspect"), (0, 1), slot)
        score = engine.resolve(
            pair_question(AiScore, ("How much does ", " say on ", "?"), "body", "aspect"), (0, 1), slot
        )
        short = engine.resolve(pair_question(AiScore, ("Is ", " ", "?"), "short", "aspect"), (0, 1), slot)
    every = [(r, a) for r in REVIEWS["review"] for a in ASPECTS["aspect"] if expected_answer(match, (r, a))]
    assert [tuple(row) for row in got.select("body", "aspect").rows()] == every
    assert got["s"].to_list() == [expected_answer(score, pair) for pair in every]
    assert got["short_score"].to_list() == [expected_answer(short, (r[:30], a)) for r, a in every]


def test_a_chain_of_joins_streams_and_asks_each_on_its_own_anchor() -> None:
    places = pl.DataFrame({"place": ["Rome", "Oslo"], "weight": [1, 2]})
    with Engine("oracle", token_budget=500) as engine:
        query = (
            qf.lazy(REVIEWS, engine=engine)
            .ai_filter("Is {review} kind?", selectivity=0.5)
            .ai_join(ASPECTS, DISCUSSES, anchor="left")
            .ai_join(places, "Does {review} on {aspect} name {place}?", anchor="left")
            .filter(pl.col("stars") > 2, pl.col("weight_right") < 5)
        )
        got = query.collect()
        assert engine.memory.contexts.pool.free == engine.memory.pages
        assert_frame_equal(pl.concat(query.collect_batches(chunk_size=2)), got)
        kind = engine.resolve(AiIf(Template(("Is ", Slot(0), " kind?")), ("review",)), (0,))
        first = engine.resolve(pair_question(AiIf, ("Does ", " discuss ", "?"), "review", "aspect"), (0, 1), (0,))
        call = AiIf(
            Template(("Does ", Slot(0), " on ", Slot(1), " name ", Slot(2), "?")), ("review", "aspect", "place")
        )
        second = engine.resolve(call, (0, 1, 2), (0, 1))
    rows = [
        (review, stars, aspect, weight, place, other)
        for review, stars in REVIEWS.rows()
        if stars > 2 and expected_answer(kind, (review,))
        for aspect, weight in ASPECTS.rows()
        if expected_answer(first, (review, aspect))
        for place, other in places.rows()
        if expected_answer(second, (review, aspect, place))
    ]
    assert got.rows() == rows and rows
    assert got.columns == ["review", "stars", "aspect", "weight", "place", "weight_right"]


def test_survivors_of_a_filter_enter_the_join_resident() -> None:
    reviews = REVIEWS.with_columns(review=pl.format("{}. {}", "stars", "review"))
    with Engine("oracle", token_budget=700) as engine:
        report = RunReport()
        query = qf.lazy(reviews, engine=engine).ai_filter("Is {review} kind?").with_columns(n=pl.col("stars") + 1)
        query.ai_join(ASPECTS, DISCUSSES, anchor="left").collect(report=report)
        kind = engine.resolve(AiIf(Template(("Is ", Slot(0), " kind?")), ("review",)), (0,))
        match = engine.resolve(pair_question(AiIf, ("Does ", " discuss ", "?"), "review", "aspect"), (0, 1), (0,))
        passing = [text for text in reviews["review"] if expected_answer(kind, (text,))]
        tokens = engine.tokenizer.encode(reviews["review"].to_list()).lengths
        filters = tokens.sum() + 12 * engine.compile(kind).prompt.own_tokens
        pairs = sum(engine.tokenizer.encode([aspect, "\nANSWER:"]).lengths.sum() for aspect in ASPECTS["aspect"])
        behind, instruction = (engine.compile(each).prompt.instruction[0] for each in (kind, match))
        frame = len(instruction) - common_start(behind, instruction)  # the filter left what both begin with
    assert passing and report.fresh_tokens == filters + len(passing) * (frame + pairs)
    assert report.regret_tokens == 0


def test_a_later_call_finds_the_anchors_resident() -> None:
    fresh = []
    for question_about in ("Is {review} about {aspect}?", "Is {copy} about {aspect}?"):
        with Engine("oracle") as engine:
            report = RunReport()
            joined = qf.lazy(REVIEWS, engine=engine).ai_join(ASPECTS, DISCUSSES, anchor="left")
            joined.with_columns(copy="text: " + pl.col("review")).ai_score(question_about).collect(report=report)
            fresh.append(report.fresh_tokens)
    assert fresh[0] < fresh[1] - 6 * 100
