"""Time to plan a query: sampling, anchors, rules, prices; no model is asked and nothing is tokenised as a whole.

    python -m benchmarks.planning

Ten AI operators over a million rows, four of them joins, planned from scratch each time (no figure of the frame is kept
between plans), and the same for one filter. The issue's bound is 50 ms on an idle core.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import polars as pl

import quail_frames as qf
from benchmarks.common import Machine, options, show, write
from quail_frames.lazy.pricing import place_of, prices_of

ROWS = 1_000_000
RUNS = 9


def main() -> None:
    """Print the table."""
    arguments = options(__doc__).parse_args()
    qf.configure("oracle")
    cases = {"one filter": one_filter(reviews()), "ten operators, four joins": ten_operators(reviews())}
    measured = {name: planning_seconds(query) for name, query in cases.items()}
    machine = Machine.here()
    rows = [(name, one, two, one + two) for name, (one, two) in measured.items()]
    show(
        f"Planning over {ROWS:,} rows, milliseconds of processor time (least of {RUNS})",
        ("query", "statistics", "rules and prices", "together"),
        rows,
        machine.line(),
    )
    figures = {name: {"statistics_ms": one, "rules_ms": two} for name, (one, two) in measured.items()}
    write(arguments.json, {"rows": ROWS, "planning": figures}, machine)


def reviews() -> pl.DataFrame:
    """A million short texts."""
    number = pl.int_range(ROWS, eager=True)
    text = pl.select(pl.format("Review number {} says that the plot is good and the acting is not", number)).to_series()
    return pl.DataFrame({"id": number, "review": text, "stars": number % 5 + 1})


def one_filter(frame: pl.DataFrame) -> qf.LazyFrame:
    """A filter on a million rows."""
    return qf.lazy(frame).ai_filter("Is {review} positive?")


def ten_operators(frame: pl.DataFrame) -> qf.LazyFrame:
    """Four filters, a score, a classification and four joins."""
    query = qf.lazy(frame).filter(pl.col("stars") > 2)
    for number, share in enumerate((0.9, 0.2, 0.5, 0.1)):
        query = query.ai_filter(f"Is the answer to question {number} about {{review}} yes?", selectivity=share)
    query = query.ai_score("Is {review} positive?")
    query = query.with_columns(topic=qf.ai_classify("review", ["plot", "acting", "special effects", "other"]))
    for number in range(4):
        terms = pl.DataFrame({f"term{number}": [f"term {number} {at}" for at in range(50)]})
        query = query.ai_join(terms, f"Does {{review}} mention {{term{number}}}?", selectivity=0.05)
    return query


def planning_seconds(query: qf.LazyFrame) -> tuple[float, float]:
    """Milliseconds of processor time for the statistics, and for anchors, rules and prices."""
    place = place_of(None)
    prices = prices_of(query._plan, place)
    return _least(lambda: prices_of(query._plan, place)), _least(lambda: query._optimized(prices))


def _least(run: Callable[[], object]) -> float:
    best = float("inf")
    for _ in range(RUNS):
        started = time.process_time()
        run()
        best = min(best, time.process_time() - started)
    return best * 1000


if __name__ == "__main__":
    main()
