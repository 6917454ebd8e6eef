"""Calls are found in any expression and replaced by answer columns."""

from __future__ import annotations

import copy
import pickle

import polars as pl
import pytest

import quail_frames as qf
from quail_frames.errors import PlanError
from quail_frames.lazy.discovery import has_calls, substitute_calls, traits_of
from quail_frames.lazy.expressions import ai_classify, ai_if, ai_score
from quail_frames.lazy.marker import call_of, field_names
from quail_frames.plan.calls import AiClassify

SPAM = ai_if("Is {body} spam?", selectivity=0.1)
ANSWER = pl.col(substitute_calls(SPAM)[1][0].column).alias("body_if")

CONTEXTS = {
    "and": lambda e: e & (pl.col("n") > 3),
    "or": lambda e: (pl.col("n") > 3) | e,
    "not": lambda e: ~e,
    "xor": lambda e: e ^ pl.col("flag"),
    "when": lambda e: pl.when(e).then(1).otherwise(pl.col("n")),
    "then": lambda e: pl.when(pl.col("n") > 1).then(e),
    "over": lambda e: e.sum().over("n"),
    "aggregation": lambda e: e.sum(),
    "filter inside": lambda e: pl.col("n").filter(e).mean(),
    "is_in": lambda e: e.is_in([True]),
    "struct": lambda e: pl.struct(e, pl.col("n")),
    "alias": lambda e: e.alias("spam"),
    "all_horizontal": lambda e: pl.all_horizontal(e, pl.col("flag")),
    "cast": lambda e: e.cast(pl.Int8).cum_sum(),
    "name": lambda e: e.name.suffix("_x"),
    "sort_by": lambda e: pl.col("n").sort_by(e),
}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS)
def test_a_call_is_replaced_by_its_answer_column_wherever_it_stands(context) -> None:
    expr, calls = substitute_calls(context(SPAM))
    assert expr.meta.eq(context(ANSWER))
    assert len(calls) == 1
    assert not has_calls(expr)


@pytest.mark.parametrize("duplicate", [copy.copy, copy.deepcopy, lambda e: pickle.loads(pickle.dumps(e))])
def test_a_copy_asks_the_same(duplicate) -> None:
    expr = SPAM & (pl.col("n") > 3)
    assert substitute_calls(duplicate(expr))[0].meta.eq(substitute_calls(expr)[0])


def test_equal_calls_share_one_answer_column() -> None:
    again = ai_if("Is {body} spam?", selectivity=0.9)
    assert len(substitute_calls(SPAM | again)[1]) == 1


def test_calls_over_different_inputs_have_their_own_columns() -> None:
    lower = ai_if("Is {0} spam?", pl.col("body").str.to_lowercase())
    plain = ai_if("Is {0} spam?", "body")
    calls = substitute_calls(lower | plain)[1]
    assert len({call.column for call in calls}) == 2
    assert [call.reads for call in calls] == [(frozenset({"body"}),)] * 2


def test_the_expression_alone_says_what_is_asked() -> None:
    expr = ai_classify(
        "Title: {title}\n\n{body}",
        ["a", "b"],
        descriptions={"b": "the other"},
        task_description="which",
        overflow="null",
    )
    (found,) = substitute_calls(expr)[1]
    assert isinstance(found.call, AiClassify)
    assert found.call == call_of(field_names(found.call)[0])
    assert found.call.descriptions == (None, "the other")
    assert found.call.columns == ("title", "body")


def test_an_expression_without_calls_comes_back_itself() -> None:
    expr = pl.col("n").map_elements(lambda n: hash(n) % 7, return_dtype=pl.Int64)
    assert substitute_calls(expr) == (expr, ())


@pytest.mark.parametrize(
    ("build", "advice"),
    [
        (lambda: ai_if("Spam?", pl.col("body").first()), "computed from its own row"),
        (lambda: ai_if("Spam?", pl.col("body").shift()), "computed from its own row"),
        (lambda: ai_if("Spam?", pl.col("body").str.join()), "computed from its own row"),
        (lambda: ai_if("Spam?", pl.lit("text")), "computed from its own row"),
        (lambda: ai_if("Spam?", ai_classify("body", ["a", "b"])), "another call's answer"),
        (lambda: ai_if("Spam?", pl.element()), "explode the list first"),
        (lambda: substitute_calls(pl.col("l").list.eval(SPAM)), "explode the list first"),
    ],
)
def test_what_is_not_a_value_of_the_row_is_refused_with_advice(build, advice: str) -> None:
    with pytest.raises(PlanError, match=advice):
        build()


def test_a_literal_that_has_no_serial_form_is_refused_with_advice() -> None:
    with pytest.raises(PlanError, match="NaN or infinite literal"):
        substitute_calls(SPAM & (pl.col("x") < float("nan")))


FRAME = pl.DataFrame(
    {
        "n": [3, 1, 2, None, 2],
        "s": ["b", "a", "", None, "c"],
        "l": [[1], [2, 3], [], None, [4]],
        "d": pl.Series(["2024-01-02", "2024-03-04", "2023-01-01", None, "2020-02-29"]).str.to_date(),
    }
)
ROW_LOCAL = {
    "arithmetic": (pl.col("n") * 2 + 1).cast(pl.Float64) * 0.25,
    "comparison": (pl.col("n") > 1) & ~(pl.col("s") == "a"),
    "is_in": pl.col("s").is_in(["a", "b"]),
    "between": pl.col("n").is_between(1, 2),
    "string": pl.col("s").str.to_uppercase() + pl.col("s").str.slice(0, 1),
    "concat": pl.concat_str("s", pl.col("n").cast(pl.String), separator="-"),
    "format": pl.format("{}:{}", "s", "n"),
    "date": pl.col("d").dt.year() + pl.col("d").dt.month(),
    "parse": pl.col("d").dt.to_string("%Y").str.to_date("%Y", strict=False),
    "list": pl.col("l").list.len(),
    "when": pl.when(pl.col("n") > 1).then(pl.col("s")).otherwise(pl.lit("z")),
    "null": pl.col("n").fill_null(7),
    "coalesce": pl.coalesce("n", pl.lit(5)),
    "struct": pl.struct("n", "s").struct.field("s"),
    "horizontal": pl.sum_horizontal("n", pl.lit(1)),
    "replace": pl.col("s").replace({"a": "q"}),
    "math": pl.col("n").abs().sqrt().round(2).clip(0, 1),
    "elements": pl.col("n").map_elements(lambda n: hash(n) % 7, return_dtype=pl.Int64),
    "selector": pl.col("n").name.suffix("_x"),
}
NOT_ROW_LOCAL = {
    "sum": pl.col("n").sum(),
    "mean": pl.col("n") - pl.col("n").mean(),
    "shift": pl.col("n").shift(),
    "rank": pl.col("n").rank(),
    "over": pl.col("n").max().over("s"),
    "unique": pl.col("n").is_duplicated(),
    "forward": pl.col("n").fill_null(strategy="forward"),
    "join": pl.col("s").str.join(","),
    "cum": pl.col("n").cum_sum(),
    "series": pl.col("n") + pl.Series([1, 2, 3, 4, 5]),
    "batches": pl.col("n").map_batches(lambda s: s.reverse()),
    "index": pl.int_range(pl.len()),
    "sort": pl.col("n").sort(),
    "member": pl.col("n").is_in(pl.col("n").head(2).implode()),
    "guess": pl.col("s").str.to_date(strict=False),
}


@pytest.mark.parametrize("expr", ROW_LOCAL.values(), ids=ROW_LOCAL)
def test_row_local_expressions_are_known_and_can_be_cut_anywhere(expr: pl.Expr) -> None:
    assert traits_of(expr).row_local
    one_by_one = pl.concat([piece.select(expr) for piece in FRAME.iter_slices(1)], how="vertical_relaxed")
    assert one_by_one.equals(FRAME.select(expr))


@pytest.mark.parametrize("expr", NOT_ROW_LOCAL.values(), ids=NOT_ROW_LOCAL)
def test_what_looks_at_other_rows_is_not_row_local(expr: pl.Expr) -> None:
    assert not traits_of(expr).row_local


@pytest.mark.parametrize(
    ("expr", "reads"),
    [
        (pl.col("n") + pl.col("s").len(), {"n", "s"}),
        (pl.lit(1), set()),
        (pl.col("l").list.eval(pl.element() + 1), {"l"}),
        (pl.col("n").sum().over("s"), {"n", "s"}),
        (pl.all().sum(), None),
    ],
)
def test_columns_read_are_known(expr: pl.Expr, reads: set[str] | None) -> None:
    assert traits_of(expr).reads == (None if reads is None else frozenset(reads))


def test_an_unpicklable_function_is_opaque() -> None:
    import threading

    lock = threading.Lock()
    expr = pl.col("n").map_elements(lambda n: n if lock else None, return_dtype=pl.Int64)
    assert traits_of(expr).reads is None
    assert not has_calls(expr)


def test_scores_and_labels_are_found_together() -> None:
    expr = (ai_score("Good? {body}") > 0.5) & (ai_classify("body", ["a", "b"]) == "a") & SPAM
    assert [found.call.kind for found in substitute_calls(expr)[1]] == ["AiScore", "AiClassify", "AiIf"]


@pytest.mark.usefixtures("reference")
def test_a_text_that_holds_the_mark_of_calls_is_a_text() -> None:
    said = 'quail-frames call {"kind": "AiIf"}'
    frame = pl.DataFrame({"a": [said, "b"]})
    plain = (pl.col("a") == said).alias("same")
    assert not has_calls(plain)
    assert has_calls(plain & qf.ai_if("Is {a} good?"))
    assert qf.lazy(frame).select(plain).collect()["same"].to_list() == [True, False]
    asked = qf.ai_if("Is it good?\n\n{0}", pl.col("a") + said).alias("good")
    assert qf.lazy(frame).select(asked).collect().height == 2


@pytest.mark.usefixtures("reference")
def test_a_call_that_gives_one_value_is_broadcast_where_polars_does_so() -> None:
    frame = pl.DataFrame({"a": ["x", "x"]})
    call = qf.ai_if("Is {a} good?").mode().alias("most")
    assert frame.lazy().with_columns(b=pl.col("a").mode()).collect().height == 2
    assert qf.lazy(frame).with_columns(call).collect().height == 2
    for eager in (pl.col("a").mode().alias("b"), call):
        with pytest.raises(pl.exceptions.PolarsError, match="length 1 doesn't match"):
            frame.with_columns(eager)
