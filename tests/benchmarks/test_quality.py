"""The quality suite runs through the public interface, and its figures are what they say."""

from __future__ import annotations

import json
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import quail_frames as qf
from benchmarks import data
from benchmarks.quality import __main__ as command
from benchmarks.quality import metrics, tasks
from benchmarks.quality.asking import METHODS, Result, choice, joined, order_flips, together, yes_no
from benchmarks.quality.metrics import Answers, area, balanced_accuracy, calibration_error, interval, worst_wording
from benchmarks.quality.report import Row, best_method, predictions
from training import corpus

pytestmark = pytest.mark.filterwarnings("ignore::quail_frames.QuailFramesWarning")


def answers(truth: list[int], right: list[bool], score: list[float], wording: list[int] | None = None) -> Answers:
    rows = len(truth)
    return Answers(
        np.arange(rows),
        np.array(wording or [0] * rows),
        np.array(truth),
        np.array(right),
        np.array(score, dtype=np.float64),
    )


def test_balanced_accuracy_weighs_answers_alike_and_then_wordings() -> None:
    one = answers([1, 1, 1, 0], [True, True, False, False], [0.5] * 4)
    assert balanced_accuracy(one) == pytest.approx((2 / 3 + 0) / 2)
    two = answers([1, 0, 1, 0], [True, True, True, False], [0.5] * 4, wording=[0, 0, 1, 1])
    assert (balanced_accuracy(two), worst_wording(two)) == (0.75, 0.5)


def test_the_area_counts_ties_half_and_needs_both_answers() -> None:
    assert area(answers([0, 0, 1, 1], [True] * 4, [0.1, 0.4, 0.35, 0.8])) == 0.75
    assert area(answers([0, 1], [True] * 2, [0.5, 0.5])) == 0.5
    assert np.isnan(area(answers([1, 1], [True] * 2, [0.5, 0.5])))


@given(st.lists(st.tuples(st.floats(0, 1), st.booleans()), min_size=1, max_size=30))
def test_the_calibration_error_is_a_weighted_mean_of_gaps(pairs: list[tuple[float, bool]]) -> None:
    score, true = (np.array(part) for part in zip(*pairs, strict=True))
    gaps = []
    for number in range(10):
        own = [(s, t) for s, t in pairs if min(int(s * 10), 9) == number]
        if own:
            gaps.append(len(own) * abs(np.mean([s for s, _ in own]) - np.mean([t for _, t in own])))
    assert calibration_error(score, true) == pytest.approx(sum(gaps) / len(pairs), abs=1e-9)
    assert calibration_error(true.astype(np.float64), true) == 0


def test_an_interval_holds_its_figure_and_narrows_with_more_items() -> None:
    random = np.random.default_rng(1)
    widths = []
    for rows in (40, 1000):
        truth = np.arange(rows) % 2
        own = answers(truth.tolist(), (random.random(rows) < 0.8).tolist(), [0.5] * rows)
        low, high = interval(balanced_accuracy, own)
        assert low <= balanced_accuracy(own) <= high
        widths.append(high - low)
    assert widths[1] < widths[0] / 2


FRAME = pl.DataFrame({"text": [f"text {number}" for number in range(12)], "flag": [True, False] * 6})


def test_scores_belong_to_their_question_and_row() -> None:
    with qf.Engine("oracle") as engine:
        result = yes_no("t", engine, FRAME, {"Is it odd?": "flag", "Is it even?": "flag"})
        plain = (
            qf.lazy(FRAME)
            .with_columns(s=qf.ai_score("Is it even?", pl.col("text")), b=qf.ai_if("Is it even?", pl.col("text")))
            .collect(engine=engine)
        )
    second = result.answers.wording == 1
    assert result.answers.score[second].tolist() == plain["s"].to_list()
    assert result.answers.right[second].tolist() == (plain["b"] == FRAME["flag"]).to_list()
    assert np.array_equal(result.answers.item[second], np.arange(12))


def test_a_choice_is_asked_by_every_method_and_decisions_know_no_order() -> None:
    labels = ["red", "green", "blue"]
    frame = FRAME.with_columns(truth=pl.Series(labels * 4))
    with qf.Engine("oracle") as engine:
        results = choice("t", engine, frame, labels, "Which colour?", METHODS)
        flips = {method: order_flips(engine, frame, labels, "Which colour?", method, 5) for method in METHODS}
    assert [result.method for result in results] == list(METHODS)
    assert all(result.answers.score.min() >= 1 / 3 for result in results)
    assert flips["decision_choice"] == 0 and flips["letters"] is not None and flips["letters"] > 0.2


def test_a_join_is_right_about_the_pairs_it_gives_and_those_it_does_not() -> None:
    left = pl.DataFrame({"item": [0, 1], "a": ["x", "y"], "own": ["p", "q"]})
    right = pl.DataFrame({"partner": [0, 1, 2], "b": ["p", "q", "r"], "own_right": ["p", "q", "r"]})
    with qf.Engine("oracle") as engine:
        result = joined("t", engine, left, right, "Does {a} suit {b}?")
        given = qf.lazy(left).ai_join(qf.lazy(right), "Does {a} suit {b}?").select("item", "partner")
        pairs = set(given.collect(engine=engine).rows())
    truth = [(a, b) for a in range(2) for b in range(3) if a == b]
    expected = [((a, b) in pairs) == ((a, b) in truth) for a in range(2) for b in range(3)]
    assert result.answers.right.tolist() == expected


def test_the_best_scoring_counts_for_the_calibration_of_choices() -> None:
    poor = Result("t", "letters", "choice", answers([0, 1], [False, False], [0.9, 0.9]))
    good = Result("t", "trie_tree", "choice", answers([0, 1], [True, True], [0.9, 0.9]))
    assert best_method([poor, good]) == "trie_tree"
    assert predictions([good])[1].tolist() == [True, True]
    assert np.isnan(Row.of(good).area)


def test_choices_among_different_labels_are_counted_as_classes_of_their_own() -> None:
    parts = [answers([0, 1], [True, True], [0.9, 0.8]), answers([0, 0, 1], [False, False, True], [0.5] * 3)]
    whole = together([Result("task", "letters", "choice", part) for part in parts])
    assert whole.answers.truth.tolist() == [0, 1, 2, 2, 3] and whole.answers.item.tolist() == [0, 1, 2, 3, 4]
    assert balanced_accuracy(whole.answers) == 0.75


def test_unread_messages_are_none_of_those_that_a_recipe_was_chosen_by(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    small_pack(tmp_path)
    monkeypatch.setattr(data, "folders", lambda: (tmp_path,))
    monkeypatch.setattr(tasks, "READ", 2)
    asked: dict[str, list[pl.DataFrame]] = {}

    def note(task: str, engine: object, frame: pl.DataFrame, labels: list[str], *rest: object) -> list[Result]:
        assert set(frame["truth"]) <= set(labels)
        asked.setdefault(task, []).append(frame)
        return [Result(task, "decision_choice", "choice", answers([0] * len(frame), [True] * len(frame), [1.0]))]

    monkeypatch.setattr(tasks, "choice", note)
    monkeypatch.setattr(tasks, "yes_no", lambda *given: None)
    with qf.Engine("oracle") as engine:
        list(tasks.intents(engine, None))
        list(tasks.unread_intents(engine, None))
    read, unread = asked["bank intents, 8"][0], asked["bank intents, 8, unread"][0]
    assert len(unread) == len(tasks.INTENTS) and not set(read["id"]) & set(unread["id"])
    assert set(unread["truth"]) == set(tasks.INTENTS)
    assert not set(asked["bank intents, eights"][0]["truth"]) & set(tasks.INTENTS)


def test_missing_tables_are_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(data, "folders", lambda: (tmp_path,))
    with pytest.raises(SystemExit, match=r"needs news.parquet.*QUAIL_FRAMES_BENCHMARK_DATA"):
        tasks.table("news")


def small_pack(folder: Path) -> None:
    """Tables of the data pack with made-up rows."""
    rows = pl.DataFrame({"id": [f"{number:03d}" for number in range(60)]}).with_row_index("n")
    texts = rows.select("id", text=pl.format("text {}", "n"), n="n")
    half = pl.col("n") % 2 == 0
    others = [f"other {number}" for number in range(12)]
    intents = pl.DataFrame({"text": [*tasks.INTENTS, *others]}).with_columns(
        id=pl.col("text"), intent=pl.col("text").str.replace_all(" ", "_")
    )
    names = pl.Series(intents["intent"].to_list() * 3)
    news = pl.Series(["Sports", "Disasters and accidents", "Science"] * 20)
    tables = {
        "review_snippets": texts.with_columns(rating=pl.when(half).then(2.5).otherwise(-2.5), domain=pl.lit("product")),
        "news": texts.with_columns(topic=news),
        "support_intents": intents.select("id", "intent", "text"),
        "support_messages": texts.with_columns(intent=names, split=pl.lit("test")),
        "claims": texts,
        "claim_evidence": rows.select(
            "id",
            claim_id="id",
            rationale=pl.format("because {}", "n"),
            label=pl.when(half).then(pl.lit("entails")).otherwise(pl.lit("contradicts")),
        ),
        "contracts": texts.with_columns(half.alias(flag) for flag in tasks.CLAUSES),
        "agent_traces": texts.select("id", trajectory_id="id", trace="text", last_returncode=pl.col("n") % 2),
    }
    for name, frame in tables.items():
        frame.drop("n", strict=False).write_parquet(folder / f"{name}.parquet")


def test_the_whole_suite_runs_and_writes_what_it_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    drawn = find_spec("matplotlib") is not None
    monkeypatch.setattr(metrics, "RESAMPLES", 20)
    small_pack(tmp_path)
    monkeypatch.setattr(data, "folders", lambda: (tmp_path,))
    out = tmp_path / "out.json"
    options = ["--model", "oracle", "--limit", "6", "--json", str(out), *(["--plots", str(tmp_path)] if drawn else [])]
    monkeypatch.setattr(sys, "argv", ["quality", *options])
    command.main()
    assert "NaN" not in out.read_text(), "figures without a meaning are null"
    (report,) = json.loads(out.read_text())["models"]
    names = {row["task"] for row in report["tasks"]}
    statements = 3 * (corpus.FOLDER / "nli.parquet").exists()
    assert len(names) == 13 + statements and report["flips"]["decision_choice"] == 0
    assert all(0 <= row["balanced_accuracy"] <= 1 for row in report["tasks"])
    assert all((tmp_path / f"{name}.png").exists() == drawn for name in ("reliability", "accuracy"))


def test_the_suites_wordings_are_not_in_the_training() -> None:
    wordings = pytest.importorskip("training.wordings")
    text = Path(wordings.__file__).read_text(encoding="utf-8")
    own = (*tasks.POSITIVE, *tasks.NEGATIVE, *tasks.FAILED, *tasks.CLAUSES.values(), tasks.INTENT_QUESTION)
    assert [wording for wording in own if wording in text] == []
