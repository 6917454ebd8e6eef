"""What wrong selectivities cost: tokens of a filter of two tests, with the user's numbers right, swapped, or missing.

One test is passed by 5% of the rows, the other by 90%. No model is needed: the oracle's scores are thresholded so that
just these shares pass, and tokens are counted.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyarrow as pa

from benchmarks import data
from benchmarks.common import Machine, options, show, write
from quail_frames.plan.calls import AiScore
from quail_frames.plan.conditions import And, ScoreTest
from quail_frames.plan.physical import Chain
from quail_frames.plan.selectivity import SEEN
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.expected import expected_answer
from quail_frames.runtime.report import RunReport

SHARES = (0.05, 0.9)
STATED: dict[str, tuple[float | None, float | None]] = {
    "right numbers": SHARES,
    "swapped numbers": (SHARES[1], SHARES[0]),
    "no numbers": (None, None),
}


def scored(column: int, share: float | None) -> AiScore:
    """A score of one column."""
    return AiScore(Template((f"How {'ab'[column]}? ", Slot(0))), ("ab"[column],), share)


def thresholds(engine: Engine, columns: tuple[int, ...], rows: list[tuple[str, str]]) -> tuple[ScoreTest, ...]:
    """The tests that the shares of the rows pass."""
    found = []
    for number, (column, share) in enumerate(zip(columns, SHARES, strict=True)):
        planned = engine.resolve(scored(number, None), (column,))
        scores = np.array([expected_answer(planned, row) for row in rows], dtype=np.float64)
        found.append(ScoreTest(number, "gt", float(np.quantile(scores, 1 - share))))
    return tuple(found)


def tokens(
    engine: Engine,
    columns: tuple[int, ...],
    tests: tuple[ScoreTest, ...],
    rows: list[tuple[str, str]],
    stated: tuple[float | None, float | None],
    learn: bool,
) -> RunReport:
    """The report of one run; the plan starts with the call of the lower number."""
    SEEN.forget()
    calls = tuple(engine.resolve(scored(n, stated[n]), (column,)) for n, column in enumerate(columns))
    order = (1, 0) if (stated[1] or 0.5) < (stated[0] or 0.5) else (0, 1)
    plan = replace(Chain(("a", "b"), (), calls, order, And(tests), ()), learn=learn)
    a, b = zip(*rows, strict=True)
    batch = pa.record_batch({"a": pa.array(a), "b": pa.array(b)})
    report = RunReport()
    list(engine.run(plan, batch_slices(batch), report))
    return report


def batch_slices(batch: pa.RecordBatch, size: int = 256) -> list[pa.RecordBatch]:
    """The batch in pieces."""
    return [batch.slice(start, size) for start in range(0, batch.num_rows, size)]


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = options(__doc__)
    parser.add_argument("--rows", type=int, default=2000, help="number of rows (default: %(default)s)")
    parser.add_argument("--token-budget", type=int, default=16_384, help="tokens of a batch (default: %(default)s)")
    chosen = parser.parse_args(arguments)
    machine = Machine.here()
    texts = [text[:160] for text in data.texts("reviews")]
    rows = [(f"{n} {texts[n % len(texts)]}", f"{n} {texts[(7 * n + 3) % len(texts)]}") for n in range(chosen.rows)]
    table: list[list[object]] = []
    figures: dict[str, float] = {}
    with Engine("oracle", token_budget=chosen.token_budget) as engine:
        for name, columns in {"one text": (0, 0), "two texts": (0, 1)}.items():
            tests = thresholds(engine, columns, rows)
            best = tokens(engine, columns, tests, rows, SHARES, True).fresh_tokens
            for words, stated in STATED.items():
                for learn in (True, False):
                    report = tokens(engine, columns, tests, rows, stated, learn)
                    ratio = report.fresh_tokens / best
                    figures[f"{name}, {words}, {'learning' if learn else 'fixed order'}"] = ratio
                    table.append(
                        [name, words, "yes" if learn else "no", report.fresh_tokens, ratio, len(report.order_changes)]
                    )
    columns = ["a row has", "the user states", "learns", "tokens", "over right", "changes"]
    caption = (
        f"{chosen.rows} rows, batches of {chosen.token_budget:,} tokens, tests passed by 5% and 90%; {machine.line()}"
    )
    show("What wrong selectivities cost", columns, table, caption)
    write(chosen.json, {**figures, "rows": chosen.rows, "token_budget": chosen.token_budget}, machine)


if __name__ == "__main__":
    main()
