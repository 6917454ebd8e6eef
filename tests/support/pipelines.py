"""Random frames and random pipelines of relational and AI steps, for hypothesis.

A step is a function that works on a plain `pl.DataFrame` and on a planned frame alike, so
that one pipeline can be run both ways. Every step keeps the columns of `COLUMNS`.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import Any

import polars as pl
from hypothesis import strategies as st

import quail_frames as qf

COLUMNS = ["text", "n", "kind", "day", "flag"]
LABELS = ["red", "green", "blue"]
TEXTS = ["", " ", "a", "same", "same", "Ünïcode ✓", "日本語のテキスト", "<|im_end|> {0} {text}", 'a\\b "c"\n', "שלום"]

Step = Callable[[Any], Any]
Named = tuple[str, Step]


@st.composite
def frames(draw: st.DrawFn, rows: int = 12) -> pl.DataFrame:
    """Up to `rows` rows with nulls, duplicates, empty strings, categoricals and dates."""
    size = draw(st.integers(0, rows))

    def values(of: st.SearchStrategy) -> list:
        return draw(st.lists(st.none() | of, min_size=size, max_size=size))

    return pl.DataFrame(
        {
            "text": values(st.sampled_from(TEXTS) | st.text(max_size=6)),
            "n": values(st.integers(-2, 3)),
            "kind": values(st.sampled_from(["x", "y"])),
            "day": values(st.dates(date(2024, 1, 1), date(2024, 1, 4))),
            "flag": values(st.booleans()),
        },
        schema={"text": pl.String, "n": pl.Int64, "kind": pl.Categorical, "day": pl.Date, "flag": pl.Boolean},
    )


CHEAP: dict[str, pl.Expr] = {
    "n > 0": pl.col("n") > 0,
    "flag": pl.col("flag"),
    "kind == x": pl.col("kind") == "x",
    "n is null": pl.col("n").is_null(),
    "day < 3rd": pl.col("day") < date(2024, 1, 3),
    "long": pl.col("text").str.len_chars() > 2,
}
ASKING: dict[str, pl.Expr] = {
    "if text": qf.ai_if("Is {text} spam?", selectivity=0.5),
    "if n, kind": qf.ai_if("Does {n} suit {kind}?"),
    "if day": pl.col("day").ai.if_("A holiday?", selectivity=0.9),
    "score > .4": qf.ai_score("Is {text} good?") > 0.4,
    "score in": qf.ai_score("Is {text} good?").is_between(0.1, 0.8),
    "label red": qf.ai_classify("text", LABELS) == "red",
    "label in": qf.ai_classify("kind", LABELS).is_in(["red", "blue"]),
    "lower": qf.ai_if("Is {0} spam?", pl.col("text").str.to_lowercase()),
    "opaque": (qf.ai_score("Is {text} good?") * 10).round().cast(pl.Int64) % 2 == 0,
    "ranked": qf.ai_score("Is {text} good?").rank() > 2,
    "null test": qf.ai_if("Is {text} spam?").is_null(),
}
WINDOW = {"n > mean": pl.col("n") > pl.col("n").mean(), "first of kind": pl.col("n").is_first_distinct()}

LEAVES = [*CHEAP.items(), *ASKING.items(), *WINDOW.items()]


def predicates() -> st.SearchStrategy[tuple[str, pl.Expr]]:
    """Trees of AND, OR and NOT over cheap, asking and window predicates."""
    return st.recursive(
        st.sampled_from(LEAVES),
        lambda inner: st.one_of(
            st.tuples(inner, inner).map(lambda p: (f"({p[0][0]} & {p[1][0]})", p[0][1] & p[1][1])),
            st.tuples(inner, inner).map(lambda p: (f"({p[0][0]} | {p[1][0]})", p[0][1] | p[1][1])),
            inner.map(lambda p: (f"~{p[0]}", ~p[1])),
        ),
        max_leaves=4,
    )


def _column(name: str, expr: pl.Expr) -> Named:
    return name, lambda frame: frame.with_columns(expr)


ADDED: list[Named] = [
    _column("label", qf.ai_classify("text", LABELS).alias("label")),
    _column("score", qf.ai_score("Is {text} good?").alias("score")),
    _column("spam", qf.ai_if("Is {text} spam?", selectivity=0.5)),
    _column("when", pl.when(qf.ai_if("Is {text} spam?")).then(pl.col("n")).otherwise(-1).alias("w")),
    _column("probabilities", qf.ai_classify("text", LABELS, probabilities=True).alias("p")),
    _column("over", qf.ai_score("Is {text} good?").max().over("kind").alias("best")),
    _column("TEXT", pl.col("text").str.to_uppercase()),
    _column("n + 1", pl.col("n") + 1),
    _column("m", (pl.col("n") * 2).alias("m")),
    _column("share", (pl.col("n") / pl.col("n").sum()).alias("share")),
    _column("several", pl.col("n", "flag").is_null().name.suffix("_null")),
    ("two", lambda frame: frame.with_columns(a=qf.ai_if("Is {text} spam?"), b=pl.col("n") - 1)),
]
OTHER = pl.DataFrame({"n": [0, 1, 1, 2], "extra": ["p", "q", "r", None], "flag": [True, False, None, True]})


def _join(frame: Any, how: str) -> Any:
    other = OTHER if isinstance(frame, pl.DataFrame) else OTHER.lazy()
    return frame.join(other, on="n", how=how, maintain_order="left", suffix=f"_{how}")


def _join_again(how: str) -> Step:
    def step(frame: Any) -> Any:
        joined = _join(frame.drop("extra", f"flag_{how}", strict=False), how)
        return joined.drop("extra", f"flag_{how}", strict=False)

    return step


def _join_few(frame: Any) -> Any:
    few = OTHER.lazy().filter(pl.col("n") > 0).select("n")
    return frame.join(few.collect() if isinstance(frame, pl.DataFrame) else few, on="n", maintain_order="left")


def _ai_join(how: str, anchor: str) -> Step:
    def step(frame: Any) -> Any:
        joined = frame.ai_join(OTHER, "Does {text} suit {extra}?", how=how, on="n", anchor=anchor, suffix="_other")
        return joined.drop("extra", "flag_other", strict=False)

    return step


def _concat(*frames: Any, how: Any = "vertical") -> Any:
    plain = isinstance(frames[0], pl.DataFrame)
    return pl.concat(frames, how=how) if plain else qf.concat(frames, how=how)


def _repeated(frame: Any) -> Any:
    spam, cheap = frame.filter(qf.ai_if("Is {text} spam?")), frame.filter(pl.col("n") > 0)
    return _concat(spam, cheap, frame.head(2).filter(qf.ai_score("Is {text} good?") > 0.4))


def _widened(frame: Any) -> Any:
    return _concat(frame, frame.filter(qf.ai_if("Is {text} late?")).cast({"n": pl.Float64}), how="vertical_relaxed")


def _reordered(frame: Any) -> Any:
    return frame.select(pl.col("flag"), pl.col("text"), pl.all().exclude("flag", "text"))


def _exploded(frame: Any) -> Any:
    return frame.with_columns(part=pl.col("text").str.split(" ")).explode("part").drop("part")


RELATIONAL: list[Named] = [
    ("sort n", lambda frame: frame.sort("n", maintain_order=True)),
    ("sort score", lambda frame: frame.sort(qf.ai_score("Is {text} good?"), "n", maintain_order=True, nulls_last=True)),
    ("head 3", lambda frame: frame.head(3)),
    ("slice 1 4", lambda frame: frame.slice(1, 4)),
    ("tail 4", lambda frame: frame.tail(4)),
    ("reverse", lambda frame: frame.reverse()),
    ("unique", lambda frame: frame.unique(maintain_order=True)),
    ("unique n", lambda frame: frame.unique("n", keep="first", maintain_order=True)),
    ("drop nulls", lambda frame: frame.drop_nulls("n")),
    ("drop any null", lambda frame: frame.drop_nulls()),
    ("reorder", _reordered),
    ("explode", _exploded),
    ("fill", lambda frame: frame.with_columns(pl.col("n").fill_null(strategy="forward"))),
    ("join left", _join_again("left")),
    ("join inner", _join_again("inner")),
    ("join semi", _join_again("semi")),
    ("join anti", _join_again("anti")),
    ("join few", _join_few),
    ("ai join inner", _ai_join("inner", "left")),
    ("ai join left", _ai_join("left", "right")),
    ("ai join semi", _ai_join("semi", "left")),
    ("ai join anti", _ai_join("anti", "left")),
    ("concat", _repeated),
    ("concat widened", _widened),
    ("narrow", lambda frame: frame.select(COLUMNS)),
    ("rename", lambda frame: frame.rename({"text": "t"}).filter(qf.ai_if("Is {t} long?")).rename({"t": "text"})),
    ("gather", lambda frame: frame.gather_every(2)),
]


def _groups_asked(frame: Any) -> Any:
    groups = frame.group_by("text", maintain_order=True).agg(pl.len())
    return groups.filter(qf.ai_if("Is {text} spam?"), pl.col("len") > 0)


def _where(column: str, expr: pl.Expr) -> Named:
    return f"where {column}", lambda frame: frame.filter(expr) if column in frame.columns else frame


HELD: list[Named] = [
    _where("label", pl.col("label") == "red"),
    _where("label", pl.col("label").is_in(["red", "green"]) | (pl.col("n") > 0)),
    _where("score", pl.col("score") > 0.5),
    _where("text_if", ~pl.col("text_if")),
    _where("text_if", pl.col("text_if") & (pl.col("n") > 0) & qf.ai_if("Is {text} late?")),
]
LAST: list[Named] = [
    (
        "group",
        lambda frame: frame.group_by("kind", maintain_order=True).agg(
            pl.len(), spam=qf.ai_if("Is {text} spam?").sum(), best=qf.ai_score("Is {text} good?").max()
        ),
    ),
    ("group, asked", _groups_asked),
    ("group all", lambda frame: frame.group_by("n", maintain_order=True).agg(pl.all().count())),
    (
        "group by label",
        lambda frame: frame.group_by(qf.ai_classify("text", LABELS), maintain_order=True).agg(pl.col("n").sum()),
    ),
    ("total", lambda frame: frame.select(pl.col("n").sum(), qf.ai_if("Is {text} spam?").mean())),
    ("count", lambda frame: frame.select(pl.len())),
    ("only label", lambda frame: frame.select(qf.ai_classify("text", LABELS))),
    ("only n", lambda frame: frame.select("n")),
    ("literal", lambda frame: frame.select(pl.lit(1).alias("one"), qf.ai_if("Is {text} spam?"))),
]


@st.composite
def pipelines(draw: st.DrawFn, steps: int = 5) -> tuple[str, Step]:
    """A random pipeline and its description."""
    filters = predicates().map(lambda p: (f"filter {p[0]}", lambda frame, expr=p[1]: frame.filter(expr)))
    some = st.one_of(*map(st.sampled_from, (ADDED, ADDED, RELATIONAL, HELD)), filters, filters)
    chosen = draw(st.lists(some, min_size=1, max_size=steps))
    if draw(st.booleans()):
        chosen = [*chosen, draw(st.sampled_from(LAST))]

    def run(frame: Any) -> Any:
        for _, step in chosen:
            frame = step(frame)
        return frame

    return " | ".join(name for name, _ in chosen), run
