"""An AI join finds the pairs that a cross join, the keys, the predicates and every pair's own prompt find."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import polars as pl
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.errors import CallError, ColumnError, ContextOverflowError, PlanError
from quail_frames.lazy.candidates import Cutter
from quail_frames.plan.calls import AiIf, AiScore
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected import expected_answer
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.ragged import common_start
from tests.support.reference_engine import ReferenceEngine

HOWS = ["inner", "left", "semi", "anti"]
PAGE_BYTES = 8 * 16

# Plain Polars ---------------------------------------------------------------------------

Slots = list[tuple[str, str]]
QUESTIONS: dict[str, tuple[tuple[str | int, ...], Slots]] = {
    "Does {left.text} mention {right.text}?": (
        ("Does ", 0, " mention ", 1, "?"),
        [("left", "text"), ("right", "text")],
    ),
    "Is {x} in {tag}, {left.text} or {right.text}, or {x}?": (
        ("Is ", 0, " in ", 1, ", ", 2, " or ", 3, ", or ", 0, "?"),
        [("right", "x"), ("left", "tag"), ("left", "text"), ("right", "text")],
    ),
}


def question(template: str, kind: type = AiIf) -> tuple[AiIf, Slots]:
    """The call that a join's template stands for, spelt out."""
    pieces, slots = QUESTIONS[template]
    parsed = Template(tuple(Slot(piece) if isinstance(piece, int) else piece for piece in pieces))
    return kind(parsed, tuple(name for _, name in slots)), slots


def pairs_by_polars(
    left: pl.DataFrame, right: pl.DataFrame, keys: dict[str, Any], where: pl.Expr | None, true: Callable[[dict], bool]
) -> pl.DataFrame:
    """Plain Polars' inner join, each pair with its rows' numbers, filtered by `where` and by `true(pair)`.

    `true` sees the columns of the sides as `left.name` and `right.name`.
    """
    spelt = [frame.select(pl.all().name.prefix(f"{side}.")) for side, frame in (("left", left), ("right", right))]
    a = left.with_row_index("left row").hstack(spelt[0])
    b = right.with_row_index("right row").hstack(spelt[1])
    pairs = a.join(b, **(keys or {"how": "cross"}))
    pairs = pairs if where is None else pairs.filter(where)
    kept = [row for row, pair in enumerate(pairs.iter_rows(named=True)) if true(pair)]
    return (
        pairs[kept]
        .sort("left row", "right row")
        .drop([f"left.{n}" for n in left.columns])
        .drop([f"right.{n}" for n in right.columns])
    )


def joined_by_polars(left: pl.DataFrame, pairs: pl.DataFrame, how: str) -> pl.DataFrame:
    numbered = left.with_row_index("left row")
    matched = pl.col("left row").is_in(pairs["left row"].implode())
    if how in ("semi", "anti"):
        return numbered.filter(matched if how == "semi" else ~matched).drop("left row")
    if how == "left":
        alone = numbered.filter(~matched)
        pairs = pl.concat([pairs, alone], how="diagonal").sort("left row", "right row")
    return pairs.drop("left row", "right row")


def oracle(call: AiIf, slots: Slots, anchor: str, engine: Engine) -> Callable[[dict], Any]:
    """The oracle's answer to a pair's whole prompt."""
    on_anchor = tuple(slot for slot, (side, _) in enumerate(slots) if side == anchor)
    planned = engine.resolve(call, tuple(range(len(slots))), on_anchor)

    def answer(pair: dict) -> Any:
        values = [pair[f"{side}.{name}"] for side, name in slots]
        return expected_answer(planned, [value if value is None else str(value) for value in values])

    return answer


TEXTS = st.none() | st.sampled_from(["", "a", "same", "some longer text", "é {x} {{"])


@st.composite
def sides(draw: st.DrawFn) -> tuple[pl.DataFrame, pl.DataFrame]:
    def side(columns: dict[str, tuple[Any, st.SearchStrategy]]) -> pl.DataFrame:
        rows = draw(st.integers(0, 6))
        data = {n: draw(st.lists(values, min_size=rows, max_size=rows)) for n, (_, values) in columns.items()}
        return pl.DataFrame(data, schema={name: dtype for name, (dtype, _) in columns.items()})

    numbers = st.none() | st.integers(0, 2)
    left = side({"n": (pl.Int64, numbers), "text": (pl.String, TEXTS), "tag": (pl.Categorical, TEXTS)})
    right = side({"text": (pl.String, TEXTS), "n": (pl.Int64, numbers), "x": (pl.Int32, numbers)})
    return left, right


KEYS: dict[str, dict[str, Any]] = {
    "none": {},
    "on n": {"on": "n"},
    "on both": {"on": ["n", "text"]},
    "n = x": {"left_on": "n", "right_on": pl.col("x").cast(pl.Int64)},
    "expressions": {"left_on": [pl.col("n") % 2], "right_on": [pl.col("n") - 1]},
}
WHERES: dict[str, pl.Expr | None] = {
    "none": None,
    "n < x": pl.col("n") < pl.col("x"),
    "n = x": pl.col("x").cast(pl.Int64) == pl.col("n"),
    "n = x and one side": (pl.col("n") + 1 == pl.col("x").cast(pl.Int64)) & (pl.col("x") > 0),
    "n = x of another type": pl.col("n") == pl.col("x"),
    "one side": (pl.col("x") > 0) & (pl.col("n") <= 1),
    "text differs": pl.col("text").ne_missing("same") | (pl.col("x") == pl.col("n")),
}


@given(data=st.data())
@settings(max_examples=120)
def test_a_join_gives_what_plain_polars_and_whole_prompts_give(data: st.DataObject) -> None:
    left, right = data.draw(sides())
    template = data.draw(st.sampled_from(list(QUESTIONS)))
    how, anchor = data.draw(st.sampled_from(HOWS)), data.draw(st.sampled_from(["left", "right"]))
    keys, where = KEYS[data.draw(st.sampled_from(list(KEYS)))], WHERES[data.draw(st.sampled_from(list(WHERES)))]
    budgets = {
        "kv_budget": data.draw(st.sampled_from([0, 12 * PAGE_BYTES, 1 << 20])),
        "token_budget": data.draw(st.sampled_from([1, 300, 9999])),
    }
    with Engine("oracle", **budgets) as engine:
        query = qf.lazy(left, engine=engine).ai_join(right, template, how=how, where=where, anchor=anchor, **keys)
        note(query.explain())
        got = query.collect()
        assert engine.memory.contexts.pool.free == engine.memory.pages
        pairs = pairs_by_polars(left, right, keys, where, oracle(*question(template), anchor, engine))
    assert query.collect_schema() == got.schema
    assert_frame_equal(got, joined_by_polars(left, pairs, how), check_exact=True, categorical_as_str=True)


MATCH = "Does {left.text} mention {right.text}?"


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("anchor", ["left", "right"])
def test_a_frame_may_be_joined_with_itself(how: str, anchor: str) -> None:
    frame = pl.DataFrame({"text": ["a", "b", "a", None, "b"], "n": range(5)})
    where = pl.col("n") < pl.col("n_right")
    with Engine("oracle") as engine:
        planned = qf.lazy(frame, engine=engine)
        got = planned.ai_join(planned, MATCH, how=how, where=where, anchor=anchor).collect()
        pairs = pairs_by_polars(frame, frame, {}, where, oracle(*question(MATCH), anchor, engine))
    assert_frame_equal(got, joined_by_polars(frame, pairs, how))


# Whole queries --------------------------------------------------------------------------

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


# What is asked --------------------------------------------------------------------------

LETTERS = pl.DataFrame({"k": [n % 10 for n in range(40)], "text": [f"text {n}" for n in range(40)]})
TERMS = pl.DataFrame({"k": range(10), "term": [f"term {n}" for n in range(10)]})
MENTIONS = "Does {text} mention {term}?"


def test_keys_and_predicates_cut_the_pairs_before_the_model(reference: ReferenceEngine) -> None:
    LETTERS.ai_join(TERMS, MENTIONS, on="k")
    assert len(reference.asks) == 40
    reference.asks.clear()
    LETTERS.ai_join(TERMS, MENTIONS, where=pl.col("k") < pl.col("k_right"), anchor="right")
    assert len(reference.asks) == 4 * 45


@pytest.mark.parametrize("where", [pl.col("n") == pl.col("m"), pl.col("m").eq(pl.col("n")) & (pl.col("m") >= 0)])
def test_values_that_must_be_equal_are_looked_up_and_not_tried_on_every_pair(where: pl.Expr) -> None:
    rows = 2000  # 4 million pairs: 16 tables of candidates where every pair is tried
    left = pl.DataFrame({"n": range(rows), "text": "a"})
    right = pl.DataFrame({"m": range(rows), "term": "b"})
    joined = qf.lazy(left).ai_join(right, MENTIONS, where=where)
    (batch,) = Cutter(joined._plan, "left", left, right).batches(left)
    assert batch.candidates.rows(5).tolist() == [5]


@pytest.mark.parametrize("how", ["semi", "anti"])
def test_a_row_is_asked_no_further_than_its_first_true(how: str, reference: ReferenceEngine) -> None:
    kept = LETTERS.ai_join(TERMS, MENTIONS, how=how).height
    assert len(reference.asks) < 40 * 4
    assert kept + LETTERS.ai_join(TERMS, MENTIONS, how="anti" if how == "semi" else "semi").height == 40


def test_equal_pairs_are_asked_once(engine: Any) -> None:
    report = RunReport()
    same = qf.lazy(pl.concat([LETTERS, LETTERS])).ai_join(pl.concat([TERMS, TERMS]), MENTIONS, anchor="left")
    assert same.select(pl.len()).collect(report=report).item() % 4 == 0
    if isinstance(engine, Engine):
        assert report.asks == 400


def test_filters_on_one_side_are_applied_before_the_join(reference: ReferenceEngine) -> None:
    joined = qf.lazy(LETTERS).ai_join(TERMS, MENTIONS, anchor="left")
    out = joined.filter(pl.col("k") < 2, pl.col("term") != "term 3").collect()
    assert len(reference.asks) == 8 * 9
    assert_frame_equal(out, joined.collect().filter(pl.col("k") < 2, pl.col("term") != "term 3"))


@pytest.mark.parametrize("how", HOWS)
def test_filters_above_any_kind_of_join_change_no_row(how: str, reference: ReferenceEngine) -> None:
    joined = qf.lazy(LETTERS).ai_join(TERMS, MENTIONS, how=how, on="k")
    predicates = [pl.col("k") < 5] + ([pl.col("term").is_null() | (pl.col("term") > "term 2")] if how == "left" else [])
    assert_frame_equal(joined.filter(*predicates).collect(), joined.collect().filter(*predicates))


def test_head_stops_the_asking() -> None:
    with Engine("oracle", token_budget=400) as engine:
        report = RunReport()
        many = pl.LazyFrame({"text": [f"text {n}" for n in range(5000)]})
        query = qf.lazy(many, engine=engine).ai_join(TERMS, MENTIONS, anchor="left")
        assert query.head(3).collect(report=report).height == 3
        assert report.asks < 500
        assert engine.memory.contexts.pool.free == engine.memory.pages


def test_only_columns_that_somebody_reads_are_carried(reference: ReferenceEngine) -> None:
    joined = qf.lazy(LETTERS).ai_join(TERMS, MENTIONS)
    out = joined.collect()
    for names in (["term"], ["k_right"], ["k"], ["k_right", "text"]):
        assert_frame_equal(joined.select(names).collect(), out.select(names))
    assert joined.select(pl.len()).collect().item() == out.height
    assert_frame_equal(joined.to_polars().select("term").collect(), out.select("term"))


# Entries, empty sides -------------------------------------------------------------------


def test_every_entry_gives_the_same(engine: object) -> None:
    truth = qf.lazy(LETTERS).ai_join(TERMS, MENTIONS, on="k").collect()
    assert_frame_equal(LETTERS.ai_join(TERMS, MENTIONS, on="k"), truth)
    assert_frame_equal(LETTERS.ai.join(TERMS.lazy(), MENTIONS, on="k"), truth)
    assert_frame_equal(LETTERS.lazy().ai_join(qf.lazy(TERMS), MENTIONS, on="k").collect(), truth)
    assert_frame_equal(LETTERS.lazy().ai.join(TERMS.lazy(), MENTIONS, left_on="k", right_on="k").collect(), truth)


@pytest.mark.parametrize("how", HOWS)
@pytest.mark.parametrize("anchor", ["left", "right", "auto"])
@pytest.mark.parametrize("empty", ["left", "right", "both"])
def test_an_empty_side_needs_no_engine(how: str, anchor: str, empty: str) -> None:
    qf.configure("no such model")
    left = LETTERS.clear() if empty != "right" else LETTERS
    right = TERMS.clear() if empty != "left" else TERMS
    query = qf.lazy(left).ai_join(right, MENTIONS, how=how, anchor=anchor)
    out = query.collect()
    assert out.schema == query.collect_schema() == (LETTERS.schema if how in ("semi", "anti") else out.schema)
    assert out.height == (left.height if how in ("left", "anti") else 0)


# Errors, ends ---------------------------------------------------------------------------


@pytest.mark.parametrize("close", [True, False])
def test_a_query_that_is_cancelled_or_fails_frees_its_memory(close: bool) -> None:
    texts = [f"text {n}" for n in range(400)] + ["x" * 400]
    with Engine("oracle", token_budget=400, max_length=300) as engine:
        left = qf.lazy(pl.DataFrame({"text": texts, "k": range(401)}), engine=engine)
        joined = left.ai_filter("Is {k} even?").ai_filter("Is {text} kind?", overflow="truncate")
        query = joined.ai_join(TERMS, MENTIONS, anchor="left").ai_score("Is {term} in {text}?")
        if close:
            pieces = query.collect_batches()
            next(pieces)
            pieces.close()
        else:
            with pytest.raises(ContextOverflowError) as caught:
                qf.lazy(pl.DataFrame({"text": texts[::-1]}), engine=engine).ai_join(TERMS, MENTIONS).collect()
            assert caught.value.partial.columns == ["text", "k", "term"]
        assert engine.memory.contexts.pool.free == engine.memory.pages


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda a, b: a.ai_join(b, "Is {text} good?"), CallError, "no column of the right frame: .* use ai_filter"),
        (lambda a, b: a.ai_join(b, "Is {term} good?"), CallError, "no column of the left frame"),
        (lambda a, b: a.ai_join(b, "Is {k} {text} {term}?"), ColumnError, r"\{left.k\} or \{right.k\}"),
        (
            lambda a, b: a.ai_join(b, "Is {txt} {term}?"),
            ColumnError,
            "'txt', which neither frame has; did you mean 'text'",
        ),
        (lambda a, b: a.ai_join(b, "Is {left.term} {term}?"), ColumnError, "left frame has no column 'term'"),
        (lambda a, b: a.ai_join(b, MENTIONS, how="outer"), PlanError, "how='outer' is unknown"),
        (lambda a, b: a.ai_join(b, MENTIONS, anchor="top"), PlanError, "anchor='top' is unknown"),
        (lambda a, b: a.ai_join(b, MENTIONS, on="kk"), ColumnError, "'kk', which the left frame .* did you mean 'k'"),
        (lambda a, b: a.ai_join(b, MENTIONS, on="k", left_on="k"), PlanError, "not both"),
        (lambda a, b: a.ai_join(b, MENTIONS, left_on="k"), PlanError, "left_on has 1 keys and right_on has 0"),
        (lambda a, b: a.ai_join(b, MENTIONS, left_on="k", right_on="term"), PlanError, "cast one of the keys"),
        (lambda a, b: a.ai_join(b, MENTIONS, on=pl.col("k").max()), PlanError, "from its own row alone"),
        (lambda a, b: a.ai_join(b, MENTIONS, on=qf.ai_if("Is {k} odd?")), PlanError, "a join key holds an AI call"),
        (lambda a, b: a.ai_join(b, MENTIONS, where=pl.col("l") > 1), ColumnError, "'l', which the joined frame"),
        (lambda a, b: a.ai_join(b, MENTIONS, where=pl.col("k") + 1), PlanError, "gives Int64: it must give Boolean"),
        (lambda a, b: a.ai_join(b, MENTIONS, where="k"), PlanError, "takes Polars expressions"),
        (lambda a, b: a.ai_join(b, MENTIONS, where=qf.ai_if("Is {k} odd?")), PlanError, "`where` holds an AI call"),
        (lambda a, b: a.ai_join(b, MENTIONS, selectivity=2), CallError, "selectivity"),
        (lambda a, b: a.ai_join(b.select(term=pl.col("k").implode()), MENTIONS), ColumnError, "explode it"),
    ],
)
def test_a_join_that_does_not_fit_its_frames_is_refused_when_they_meet(build, error, message: str) -> None:
    with pytest.raises(error, match=message):
        build(qf.lazy(LETTERS), TERMS)


# Plans ----------------------------------------------------------------------------------


def test_the_anchor_is_the_side_that_costs_less_and_explain_names_it() -> None:
    long, short = pl.DataFrame({"text": ["word " * 200] * 20}), pl.DataFrame({"term": ["a", "b"] * 10})
    assert "the left row's text is read once" in qf.lazy(long).ai_join(short, MENTIONS).explain()
    assert "the right row's text is read once" in qf.lazy(short).ai_join(long, "Is {term} in {text}?").explain()
    assert (
        "the left row's text is read once" in qf.lazy(short).ai_join(long, "Is {term} in {text}?", how="semi").explain()
    )


def test_what_follows_a_join_does_not_change_its_anchor(engine: object) -> None:
    long = pl.DataFrame({"text": [f"{n} " + "word " * 30 for n in range(8)], "few": [n == 0 for n in range(8)]})
    joined = qf.lazy(long).ai_filter("Is {text} odd?").with_columns(up=qf.ai_score("Is {text} up?") > 0.5)
    joined = joined.ai_join(TERMS, MENTIONS)
    out = joined.collect()
    for predicates in ([pl.col("few")], ["up", pl.col("term") == "term 1"], [pl.col("k") > 2]):
        assert_frame_equal(joined.filter(*predicates).collect(), out.filter(*predicates))
        assert_frame_equal(joined.to_polars().filter(*predicates).collect(), out.filter(*predicates))


def test_a_source_that_may_ask_a_model_is_not_looked_at() -> None:
    qf.configure("no such model")
    asking = qf.lazy(LETTERS).ai_filter("Is {text} good?").to_polars()
    assert "the left row's text" in qf.lazy(asking).ai_join(asking, MATCH).explain()


def test_explain_reads_like_a_colleague() -> None:
    query = (
        qf.lazy(LETTERS)
        .ai_filter("Is {text} good?", selectivity=0.5)
        .ai_join(TERMS, MENTIONS, on="k", where=pl.col("text") != pl.col("term"), selectivity=0.1, anchor="left")
        .ai_score("Does {text} praise {term}?")
    )
    assert query.explain(numbers=False).split("As planned\n")[1] == EXPLAINED


EXPLAINED = """\
  1. read frame of 40 rows
  2. ask the model about each row, in this order, only as far as a row's fate is open:
       a) ai_if("Is {text} good?")
       keep rows where ai_if("Is {text} good?") (about 50%)
       the texts of kept rows stay in memory for what is asked next
  3. pair each row with the rows of the right side; keep the pairs for which the model says TRUE to
       ai_if("Does {text} mention {term}?") (about 10% of pairs)
       only pairs of the same k
       only pairs where (col("text") != col("term"))
       the left row's text is read once and stays in memory for all its pairs, and after them for what is asked next
       right side:
         1. read frame of 10 rows
  4. ask the model about each row, in this order:
       a) ai_score("Does {text} praise {term}?"), on the joined row's {text}, answer kept
  5. add columns
       text_score = ai_score("Does {text} praise {term}?")
  6. keep columns k, text, term, text_score"""


@pytest.fixture(autouse=True)
def no_engine_left_open() -> Iterator[None]:
    yield
    qf.close_default_engine()
