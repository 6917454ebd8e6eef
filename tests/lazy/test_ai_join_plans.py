"""AI joins that are refused, and how the others are planned and explained."""

from __future__ import annotations

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf
from quail_frames.errors import CallError, ColumnError, PlanError
from tests.lazy.joins import LETTERS, MATCH, MENTIONS, TERMS


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
