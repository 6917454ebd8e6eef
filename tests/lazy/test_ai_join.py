"""An AI join finds the pairs that a cross join, the keys, the predicates and every pair's own prompt find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import polars as pl
import pytest
from hypothesis import given, note, settings
from hypothesis import strategies as st
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.plan.calls import AiIf
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected import expected_answer
from tests.lazy.joins import HOWS, MATCH, PAGE_BYTES

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
