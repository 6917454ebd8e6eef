"""What a user sees of a query: its explanation, estimates for other devices, its graph, its profile."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import numpy.typing as npt
import polars as pl
import pytest

import quail_frames as qf
from quail_frames.cost.budgets import budgets
from quail_frames.cost.devices import UNMEASURED, Device, device
from quail_frames.cost.roofline import roofline
from quail_frames.cost.shapes import ModelShape, shape
from quail_frames.cost.work import filter_chain
from quail_frames.errors import ModelError, PlanError
from quail_frames.lazy import engines, pricing
from quail_frames.plan.conditions import Answer
from quail_frames.plan.logical import Ask, walk
from quail_frames.plan.selectivity import SEEN, Counts
from quail_frames.runtime import named

REVIEWS = pl.DataFrame(
    {
        "review": [f"Review number {n} says that the plot is {'good ' * (n % 7)}" for n in range(300)],
        "stars": [n % 5 + 1 for n in range(300)],
    }
)
LABELS = ["plot", "acting", "special effects", "other"]


@pytest.fixture(autouse=True)
def oracle() -> Iterator[None]:
    engines.configure("oracle")
    yield
    qf.close_default_engine()


def query() -> qf.LazyFrame:
    return (
        qf.lazy(REVIEWS)
        .ai_filter("Is {review} short?", selectivity=0.9)
        .ai_filter("Does {review} mention the ending?", selectivity=0.1)
        .filter(pl.col("stars") > 3)
        .with_columns(topic=qf.ai_classify("review", LABELS))
    )


def test_explain_names_every_decision_with_what_else_was_possible() -> None:
    text = query().explain()
    order = text.split("order of questions: ")[1]
    assert order.splitlines()[1].endswith("<- taken") and "(as written)" in order
    assert "a) 10% (as stated by the query), b) 90% (as stated by the query)" in order
    for decision in ("layout of a)", "label scoring of c)"):
        assert decision in text
    assert "  letters " in text and "  question_first " in text
    assert "300 rows (counted), {review} about" in text and "ordinary-cpu" in text
    assert text.count("speed of light") == 2


def test_a_filter_without_calls_counts_as_its_sample_says() -> None:
    plan = query().explain(format="json")["planned"]
    steps = {}
    while plan["inputs"]:
        steps[plan["step"]] = plan
        plan = plan["inputs"][0]
    assert steps["Filter"]["rows"] == pytest.approx(120, rel=0.1)
    assert steps["Ask"]["rows"] == pytest.approx(120 * 0.09, rel=0.1)
    calls = steps["Ask"]["physical"]["calls"]
    assert [call["asks"] for call in calls] == pytest.approx([120, 12, 10.8], rel=0.1)


def test_the_json_form_is_plain_data_and_its_prices_add_up() -> None:
    found = json.loads(json.dumps(query().explain(format="json")))
    (ask,) = [step for step in _steps(found["planned"]) if step["step"] == "Ask"]
    assert found["tokens"] == ask["tokens"] == ask["work"]["new_tokens"]
    assert found["seconds"] == pytest.approx(ask["seconds"])
    order = next(choice for choice in ask["decisions"] if choice["decision"] == "order of questions")
    taken = next(each for each in order["alternatives"] if each["name"] == order["chosen"])
    assert taken["seconds"] == min(each["seconds"] for each in order["alternatives"])
    assert taken["seconds"] == pytest.approx(sum(part["seconds"] for part in taken["components"]))
    assert query().explain(format="json", optimized=False).keys() == {"written"}


def _steps(step):
    return [step, *(inner for each in step["inputs"] for inner in _steps(each))]


def test_a_join_shows_both_anchors() -> None:
    terms = pl.DataFrame({"term": ["plot", "actor", "music"]})
    joined = qf.lazy(REVIEWS).ai_join(terms, "Does {review} mention {term}?", selectivity=0.1)
    text = joined.explain()
    assert "anchor: right row" in text and "  left row " in text and "attention path: tree" in text
    assert "asked about 900 times" in text
    assert "because named by the query" in _pinned(terms).explain()


def _pinned(terms: pl.DataFrame) -> qf.LazyFrame:
    return qf.lazy(REVIEWS).ai_join(terms, "Does {review} mention {term}?", anchor="right")


def test_what_earlier_runs_saw_is_shown_and_orders_questions() -> None:
    asked = qf.lazy(REVIEWS).ai_filter("Is {review} short?").ai_filter("Is {review} glad?")
    assert "(assumed)" in asked.explain() and "remembered" not in asked.explain()
    short, glad = (use.call for node in walk(asked._optimized()) if isinstance(node, Ask) for use in node.calls)
    SEEN.add(short, Answer(0), Counts(720, 800))
    SEEN.add(glad, Answer(0), Counts(96, 800))
    text = asked.explain()
    assert "a) 12% (remembered 0.12 of 800 rows), b) 90% (remembered 0.90 of 800 rows)" in text
    assert 'a) ai_if("Is {review} glad?")' in text and "(about 12%)" in text


def test_equal_texts_are_expected_to_be_asked_once() -> None:
    few = pl.DataFrame({"kind": ["a note", "a letter", "an invoice"] * 1000})
    assert qf.lazy(few).ai_filter("Is {kind} long?").estimate(device="h200", model="qwen3-8b").asks == 3


def reviews_of(lengths: npt.NDArray[np.int64]) -> qf.LazyFrame:
    """Reviews of so many tokens each, asked the two questions of the published run: preamble and tails as there."""
    words = [f"{n:06d}"[::-1] + " film" * (int(length) - 2) for n, length in enumerate(lengths)]  # digits: 2 tokens
    texts = pl.DataFrame({"review": words})
    asked = qf.lazy(texts).ai_filter("Is it good? {review}", selectivity=0.25)
    return asked.ai_filter("Is it sad? {review}", selectivity=0.5)


@pytest.mark.parametrize("spread", [0.0, 0.8])
def test_the_published_reviews_take_the_published_seconds(spread: float) -> None:
    # 100,000 reviews of 29,926,924 tokens, filters that pass a quarter and a half: 124 s with tails of 19 tokens, here
    # of 21. Lengths of real reviews spread by three quarters of their mean.
    rows, tokens = 100_000, 29_926_924
    drawn = np.random.default_rng(3).lognormal(0.0, spread, rows)
    lengths = np.maximum(1, np.round(drawn * tokens / drawn.sum())).astype(np.int64)
    found = reviews_of(lengths).estimate(device="h100-sxm", model="Qwen/Qwen3-4B-FP8", price_per_hour=3.6)
    assert found.asks == 125_000
    assert found.tokens == pytest.approx(tokens + rows * 4 + found.asks * 21, rel=0.02)
    assert found.seconds == pytest.approx(124, rel=0.03)
    assert found.dollars == pytest.approx(found.seconds / 1000)


def test_the_estimate_is_that_of_the_work_given_exactly() -> None:
    lengths = np.full(20_000, 299, dtype=np.int64)
    found = reviews_of(lengths).estimate(device="h100-sxm", model="Qwen/Qwen3-4B-FP8")
    model, where = shape("qwen3-4b-fp8"), device("h100-sxm")
    work = filter_chain(299, [21, 21], [0.25, 0.5], preamble=4) * 20_000
    batches = work.new_tokens / budgets(model, where).tokens
    assert found.seconds == pytest.approx(roofline(work, model, where, batches).seconds, rel=0.03)


def test_estimates_for_other_models_load_nothing_and_say_what_is_unknown() -> None:
    found = query().estimate(device="rtx-4090", model="llama-3.1-8b")
    assert found.model == "llama-3.1-8b" and found.dollars is None and found.steps[0].asks == pytest.approx(found.asks)
    config = {"num_hidden_layers": 2, "hidden_size": 64, "num_attention_heads": 2, "intermediate_size": 128}
    assert query().estimate(device="l40s", model={**config, "vocab_size": 1000}).model == "model"
    assert "llama-3.1-8b on rtx-4090: about" in repr(found)
    here = query().estimate(price_per_hour=1.0)
    assert here.device in UNMEASURED and here.dollars == pytest.approx(here.seconds / 3600)
    with pytest.raises(ModelError, match="did you mean"):
        query().estimate(device="h100-sxm", model="qwen3-5b")
    with pytest.raises(PlanError, match="does not fit on rtx-4090"):
        query().estimate(device="rtx-4090", model="llama-3.1-70b")


@pytest.mark.parametrize(("amx", "dtype"), [(False, "fp32"), (True, "bf16")])
def test_a_model_by_name_is_priced_on_this_machine_in_the_type_that_its_cpu_runs(
    monkeypatch: pytest.MonkeyPatch, amx: bool, dtype: str
) -> None:
    monkeypatch.setattr(pricing, "cpu_has_amx", lambda: amx)
    priced: list[ModelShape] = []

    def measured(model: ModelShape) -> Device:
        priced.append(model)
        return replace(device("m2-max"), name="local")

    monkeypatch.setattr(pricing, "local_device", measured)
    query().estimate(model="smollm2-135m")
    query().estimate(model=shape("smollm2-135m"))
    assert [model.dtype for model in priced] == [dtype, "bf16"]


class SomewhereElse:
    """An engine that says its model's name and nothing of its device, as an endpoint does."""

    model_name, closed = "Qwen/Qwen3-8B", False

    def run(self) -> None: ...
    def resolve(self) -> None: ...
    def end(self) -> None: ...


def test_an_engine_that_says_little_is_priced_by_its_models_name_and_nothing_is_measured() -> None:
    asked = qf.lazy(REVIEWS, engine=SomewhereElse()).ai_filter("Is {review} short?")  # type: ignore[arg-type]
    text = asked.explain()
    assert "model qwen3-8b" in text and "does not say what it runs on" in text


def test_the_graph_is_svg_in_notebooks_and_words_elsewhere() -> None:
    graph = query().show_graph()
    root = ElementTree.fromstring(graph.svg)
    assert len(root.findall("{http://www.w3.org/2000/svg}rect")) == 5
    assert graph._repr_html_().count("<svg") == 1
    assert repr(graph) == query().explain()
    joined = query().ai_join(pl.DataFrame({"term": ["plot", "actor"]}), "Does {review} mention {term}?").show_graph()
    boxes = list(joined.root.walk())
    assert len(boxes) == 7 and [box.asks for box in boxes].count(True) == 2
    for one, other in combinations(boxes, 2):
        beside = one.x + one.width < other.x or other.x + other.width < one.x
        assert beside or one.y + one.height < other.y or other.y + other.height < one.y
    assert "&lt;script" in qf.lazy(REVIEWS).ai_filter("<script>{review}").show_graph().svg


def test_a_profile_counts_what_ran() -> None:
    profile = query().profile()
    assert profile.frame.equals(query().collect())
    (ask,) = [step for step in profile.steps if step.calls]
    assert (ask.rows_in, ask.rows) == (120, profile.frame.height)
    assert ask.calls[0].asks == 120
    assert sum(call.asks for call in ask.calls) == ask.asks == profile.report.asks
    assert ask.calls[1].asks == round(120 * (ask.calls[0].passed or 0))
    assert ask.fresh_tokens == profile.report.fresh_tokens == int(profile.report.work.new_tokens)
    assert json.loads(json.dumps(profile.to_dict()))["report"]["asks"] == ask.asks
    assert "120 rows in" in repr(profile) and "% expected)" in repr(profile)


def test_a_profile_on_a_simulated_device_runs_at_its_speed_of_light() -> None:
    with qf.Engine("qwen3-0.6b", device="simulated:h100-sxm") as engine:
        profile = query().profile(engine=engine)
        estimate = qf.lazy(REVIEWS, engine=engine).ai_filter("Is {review} short?").explain(format="json")
    (ask,) = [step for step in profile.steps if step.calls]
    assert ask.slowdown is not None and 0.95 < ask.slowdown < 60
    assert estimate["priced_by"]["device"]["name"] == "h100-sxm"


def test_texts_that_start_alike_are_expected_to_share_their_start() -> None:
    start = "Terms of service. The following clauses hold for all orders placed on this site and are agreed to. " * 4
    letters = pl.DataFrame({"letter": [f"{start} Order {n} was late." for n in range(100)]})
    text = qf.lazy(letters).ai_filter("Is {letter} angry?").explain()
    sharing = text.split("prefix sharing across rows: ")[1]
    assert sharing.startswith("shared") and "  separate  " in sharing
    assert "prefix sharing" not in qf.lazy(REVIEWS).ai_filter("Is {review} long?").explain()


def test_the_order_of_joins_is_a_decision_with_its_alternative() -> None:
    many = pl.DataFrame({"term": [f"term {n}" for n in range(40)]})
    few = pl.DataFrame({"tone": ["glad"]})
    joined = qf.lazy(REVIEWS.head(60)).ai_join(many, "Does {review} mention {term}?", selectivity=0.9, anchor="left")
    joined = joined.ai_join(few, "Is {review} {tone}?", selectivity=0.01, anchor="left")
    order = joined.explain().split("order of joins: ")[1].split("price:")[0]
    assert 'ai_if("Is {review} {tone}?"), then ai_if("Does {review} mention {term}?")' in order.splitlines()[0]
    assert "as written: " in order and "<- taken" in order
    (choice,) = joined.explain(format="json")["decisions"]
    assert choice["alternatives"][0]["name"] == choice["chosen"]


@pytest.mark.parametrize(("amx", "dtype"), [(False, "fp32"), (True, "bf16")])
def test_an_engine_that_is_not_open_is_priced_in_the_type_that_it_will_run_in(
    monkeypatch: pytest.MonkeyPatch, amx: bool, dtype: str
) -> None:
    for module in (pricing, named):
        monkeypatch.setattr(module, "cpu_has_amx", lambda: amx)
    monkeypatch.setattr(pricing, "kept_device", lambda model: None)
    for asked, priced in (("auto", dtype), ("float32", "fp32"), ("bfloat16", "bf16")):
        engines.configure(dtype=asked)
        target = pricing.place_of(None).target
        fast = amx and priced == "bf16"
        assert target.shape.dtype == priced
        assert target.device.name == ("ordinary-cpu-amx" if fast else "ordinary-cpu")
        text = query().explain()
        assert ("CPU with AMX" in text) == fast and f"batches of {'6,144' if fast else '2,048'} tokens" in text


def test_an_engine_that_is_not_open_is_explained_as_it_will_run() -> None:
    engines.configure(dtype="float32")
    text = query().explain()
    assert "label scoring of c): decision_choice" in text and "model smollm2-135m-decide (fp32)" in text
    assert "batches of 2,048 tokens" in text
    engines.configure(dtype="float32", token_budget=512, kv_budget=1 << 30)
    place = pricing.place_of(None)
    assert (place.target.budgets.tokens, place.target.budgets.kv_tokens) == (512, (1 << 30) // 46_080 // 16 * 16)
    engines.configure("some-model", backend="openai", base_url="http://localhost:1")
    assert "label scoring of c): trie_decode" in query().explain()
    engines.configure(backend="vllm")
    assert "decision_choice" not in query().explain()


def test_a_change_of_order_that_came_too_late_for_every_row_is_not_told() -> None:
    texts = pl.read_parquet(Path(__file__).parents[2] / "examples/data/reviews.parquet").lazy()
    asked = texts.ai_filter("Is the review {text} favourable?", selectivity=0.5)
    asked = asked.ai_filter("Does the review {text} discuss the ending?", selectivity=0.1)
    with qf.Engine("qwen3-4b-fp8", device="simulated:h100-sxm") as engine:
        told = str(asked.profile(engine=engine))
    assert "asked 60 times" in told and "asked in another order" not in told
