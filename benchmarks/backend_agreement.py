"""The same queries through the native runtime and through vLLM, with the same weights and dtype: what share agrees?

Runs where both are installed; docs/backends.md says how. Answers of every kind are compared one by one, and those that
differ are listed.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable
from dataclasses import asdict, dataclass
from itertools import chain
from typing import Any

import numpy as np
import polars as pl
import torch

import quail_frames as qf
from benchmarks.common import Machine, model_options, show, write
from benchmarks.data import texts
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.options import DEFAULT_MODEL

AGREEMENT = 0.995
LABELS = ["card payment", "card delivery", "cash withdrawal", "transfer", "exchange rate", "identity check", "top up"]
TERMS = [
    "a card",
    "a fee",
    "a refund",
    "cash",
    "a transfer",
    "a delay",
    "identity",
    "an error",
    "another country",
    "a PIN",
]
SHARE_OF_TREES = 6
SHARE_OF_ANCHORS = 3
"""One in so many rows is classified by trie_tree, or joined: they cost the most."""

Frame = pl.DataFrame
Query = Callable[[Frame], Any]


@dataclass(frozen=True)
class Agreement:
    """Answers of one kind; `differing` are rows that only one side gave."""

    kind: str
    answers: int
    agreeing: int
    differing: tuple[tuple[Any, ...], ...]
    widest_score_difference: float
    native_seconds: float
    vllm_seconds: float


QUERIES: dict[str, Query] = {
    "ai_if": lambda frame: qf.lazy(frame).with_columns(
        first=qf.ai_if("Does the customer report a problem?\n\n{text}"),
        second=qf.ai_if("Is this about a card?\n\n{text}"),
    ),
    "ai_score": lambda frame: qf.lazy(frame).with_columns(score=qf.ai_score("Is the customer angry?\n\n{text}")),
    "letters": lambda frame: _classified(frame, "letters"),
    "trie_decode": lambda frame: _classified(frame, "trie_decode"),
    "trie_tree": lambda frame: _classified(frame.gather_every(SHARE_OF_TREES), "trie_tree"),
    "chain": lambda frame: (
        qf.lazy(frame)
        .filter(qf.ai_if("Does the customer ask a question?\n\n{text}", selectivity=0.5))
        .with_columns(label=qf.ai_classify("text", LABELS, scoring="letters"))
    ),
    "join": lambda frame: qf.lazy(frame.gather_every(SHARE_OF_ANCHORS)).ai_join(
        pl.DataFrame({"term": TERMS}).lazy(), "Does {text} mention {term}?"
    ),
}


def _classified(frame: Frame, scoring: Any) -> Any:
    return qf.lazy(frame).with_columns(label=qf.ai_classify("text", LABELS, scoring=scoring))


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = model_options(__doc__)
    parser.add_argument("--rows", type=int, default=240, help="messages asked about (default: %(default)s)")
    parser.set_defaults(model=DEFAULT_MODEL)
    parser.add_argument("--schedule", choices=["pipelined", "stages"], default="pipelined")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    machine = Machine.here()
    frame = pl.DataFrame({"text": texts("support_messages")[: options.rows]}).unique(maintain_order=True)
    with Engine(options.model, dtype=options.dtype) as engine:
        native = _all("native", frame, engine)
    with _vllm(options) as engine:
        peer = _all("vLLM", frame, engine)
    found = [compared(name, frame, native[name], peer[name]) for name in QUERIES]
    write(options.json, {"agreement": [asdict(each) for each in found], **vars(options), "json": None}, machine)
    _show(found, options, machine)
    share = sum(each.agreeing for each in found) / sum(each.answers for each in found)
    if share < AGREEMENT:
        raise SystemExit(f"only {share:.2%} of the answers agree")


def _vllm(options: Namespace) -> Engine:
    return Engine(
        options.model,
        backend="vllm",
        dtype=options.dtype,
        max_length=1024,
        kv_budget=1 << 30,
        schedule=options.schedule,
        engine_args={"enforce_eager": True},
    )


def _all(side: str, frame: Frame, engine: Engine) -> dict[str, tuple[Frame, float]]:
    """Every query's result and seconds."""
    found = {}
    for name, query in QUERIES.items():
        found[name] = _timed(query, frame, engine)
        print(f"{side}: {name} in {found[name][1]:.1f} s", flush=True)
    return found


def _timed(query: Query, frame: Frame, engine: Engine) -> tuple[Frame, float]:
    started = time.perf_counter()
    return query(frame).collect(engine=engine), time.perf_counter() - started


def compared(kind: str, frame: Frame, native: tuple[Frame, float], peer: tuple[Frame, float]) -> Agreement:
    """Answer by answer; of a join or a filter, each pair or row that could have been kept."""
    ours, theirs = native[0], peer[0]
    answers, difference = len(ours), 0.0
    parts: list[list[Any]] = [[name] for name in ours.columns if name != "text"]
    if kind == "join":
        answers, parts = len(frame.gather_every(SHARE_OF_ANCHORS)) * len(TERMS), [["term"]]
    elif kind == "chain":
        answers = len(frame)
    elif kind == "ai_score":
        difference = float(np.abs(ours["score"].to_numpy() - theirs["score"].to_numpy()).max())
        parts = [[pl.col("score") > 0.5]]
    else:
        answers *= len(parts)
    differing = [_only_one(*(side.select("text", *part) for side in (ours, theirs))) for part in parts]
    answered = [len(set(rows) if kind == "join" else {text for text, _ in rows}) for rows in differing]
    return Agreement(kind, answers, answers - sum(answered), tuple(chain(*differing)), difference, native[1], peer[1])


def _only_one(ours: Frame, theirs: Frame) -> list[tuple[Any, ...]]:
    """Rows of one side that the other has not."""
    return sorted(set(ours.rows()) ^ set(theirs.rows()))


def _show(found: list[Agreement], options: Namespace, machine: Machine) -> None:
    columns = ("kind", "answers", "agree", "scores differ by", "native s", "vLLM s")
    rows = [
        [
            f.kind,
            f.answers,
            f"{f.agreeing / f.answers:.2%}",
            f.widest_score_difference,
            f.native_seconds,
            f.vllm_seconds,
        ]
        for f in found
    ]
    answers, agreeing = sum(f.answers for f in found), sum(f.agreeing for f in found)
    caption = (
        f"{agreeing} of {answers} answers agree ({agreeing / answers:.2%}); {options.model}, {options.dtype}, "
        f"{options.threads} threads, {options.schedule}, vLLM without its compiler; {machine.line()}"
    )
    show("native and vLLM", columns, rows, caption)


if __name__ == "__main__":
    main()
