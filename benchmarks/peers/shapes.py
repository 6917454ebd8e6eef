"""The shapes that are measured: which texts, which questions, how many of each.

Sizes are those of scale 1; `--scale` multiplies the number of rows or anchors. A shape is cut
into chunks, so that the two sides can take turns.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks import data
from benchmarks.filter_chain import QUESTIONS
from benchmarks.peers.workloads import Classifications, FilterChain, Joins, SemiJoin, Workload
from benchmarks.prompts import classify_call, filter_call, join_call
from quail_frames.plan.physical import PlannedCall
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.tokens.ragged import Ragged

ASPECTS = (
    *("the ending", "the acting", "the special effects", "the music", "the director", "the script", "a sequel"),
    *("the length of the film", "the humour", "violence", "the love story", "the dialogue", "the camera work"),
    *("a book", "the budget", "the villain", "a child", "the opening scene", "an award", "the costumes"),
)
TONES = ("enthusiastic", "approving", "mixed", "disappointed", "hostile")
SUBJECTS = ("the story", "the acting", "the direction", "the effects", "the dialogue", "the music")
AUDIENCES = ("children", "teenagers", "adults", "fans of the genre")
TRACE_TOKENS = 4096


@dataclass(frozen=True)
class Shape:
    """A named shape; `make(engine, scale)` gives its chunks. Join shapes have "join" in their name."""

    name: str
    make: Callable[[Engine, float], list[Workload]]


def filters(engine: Engine, scale: float) -> list[Workload]:
    """Three filters over reviews of about 280 tokens."""
    rows = reviews(engine, 280, sized(150, scale))
    calls = [filter_call(engine, question) for question in QUESTIONS]
    return [FilterChain(engine, calls, part) for part in split(rows, 2)]


def filter_join(engine: Engine, scale: float) -> list[Workload]:
    """A filter of long reviews, then a join of the survivors with 20 short aspects."""
    rows = reviews(engine, 1000, sized(16, scale))
    keep = filter_call(engine, QUESTIONS[0])
    call = join_call(engine, "Does the review ", " discuss ", "?")
    aspects = engine.tokenizer.encode(list(ASPECTS))
    return [Joins(engine, [call], part, [aspects], keep) for part in split(rows, 2)]


def join(engine: Engine, scale: float) -> list[Workload]:
    """20 abstracts, each with 60 short terms."""
    call = mentions(engine)
    terms = short_terms(engine, 60)
    return [Joins(engine, [call], part, [terms]) for part in split(abstracts(engine, sized(20, scale)), 2)]


def two_joins(engine: Engine, scale: float) -> list[Workload]:
    """Abstracts with 24 terms, and the same abstracts with 16 claims."""
    claims = engine.tokenizer.encode(data.texts("claims")[:16])
    calls = [mentions(engine), join_call(engine, "Does the abstract ", " support the claim ", "?")]
    sides = [short_terms(engine, 24), claims]
    return [Joins(engine, calls, part, sides) for part in split(abstracts(engine, sized(20, scale)), 2)]


def semi_join(engine: Engine, scale: float) -> list[Workload]:
    """Abstracts that mention at least one of 40 terms."""
    call, terms = mentions(engine, selectivity=0.1), short_terms(engine, 40)
    return [SemiJoin(engine, call, part, terms) for part in split(abstracts(engine, sized(24, scale)), 2)]


def many_labels(engine: Engine, scale: float) -> list[Workload]:
    """Short messages to a bank, each one of up to 77 intents."""
    labels = tuple(data.texts("support_intents"))
    call = classify_call(engine, labels, "Customer messages to a bank.")
    rows = engine.tokenizer.encode(spread(data.texts("support_messages"), sized(600, scale)))
    return [Classifications(engine, [call], part) for part in split(rows, 2)]


def three_classifications(engine: Engine, scale: float) -> list[Workload]:
    """Tone, subject and audience of the same long reviews."""
    tasks = {"The tone of the review.": TONES, "What it says most about.": SUBJECTS, "For whom the film is.": AUDIENCES}
    calls = [classify_call(engine, labels, task) for task, labels in tasks.items()]
    return [Classifications(engine, calls, part) for part in split(reviews(engine, 700, sized(40, scale)), 2)]


def traces(engine: Engine, scale: float) -> list[Workload]:
    """Growing snapshots of agent runs, cut to 4,096 tokens: each row starts with the whole row before it."""
    call = filter_call(engine, "Did the last command succeed?")
    runs = snapshots()
    chosen = spread(list(runs), max(2, round(4 * scale)))
    chunks = []
    for run in chosen:
        rows = data.heads(engine.tokenizer.encode(runs[run]), TRACE_TOKENS)
        uncut = int((rows.lengths < TRACE_TOKENS).sum())  # rows beyond the first cut one would all be equal
        chunks.append(FilterChain(engine, [call], rows.take(np.arange(min(uncut + 1, len(rows))))))
    return list(chunks)


SHAPES = (
    Shape("three_filters", filters),
    Shape("filter_then_join", filter_join),
    Shape("join_20x60", join),
    Shape("two_joins_one_anchor", two_joins),
    Shape("labels_77", many_labels),
    Shape("three_classifications", three_classifications),
    Shape("agent_traces", traces),
    Shape("semi_join", semi_join),
)


def mentions(engine: Engine, selectivity: float = 0.2) -> PlannedCall:
    """Does an abstract mention a term."""
    return join_call(engine, "Does the abstract ", " mention ", "?", selectivity)


def reviews(engine: Engine, tokens: int, count: int) -> Ragged:
    """Reviews cut to about this many tokens."""
    return engine.tokenizer.encode(data.cut_to(data.texts("reviews"), tokens, engine.tokenizer)[:count])


def abstracts(engine: Engine, count: int) -> Ragged:
    """Abstracts of papers, some 300 tokens each."""
    return engine.tokenizer.encode(spread(data.texts("evidence"), count))


def short_terms(engine: Engine, count: int) -> Ragged:
    """Names of adverse reactions of at most 30 characters."""
    short = [text for text in data.texts("reactions") if len(text) <= 30]
    return engine.tokenizer.encode(spread(short, count))


def snapshots() -> dict[str, list[str]]:
    """Texts of each run, growing; from reviews, line by line, where there is no table of traces."""
    frame = data.table("agent_traces")
    if frame is None:
        lines = [text.splitlines(keepends=True) for text in data.texts("reviews")]
        return {str(n): ["".join(each[:stop]) for stop in range(1, len(each) + 1)] for n, each in enumerate(lines)}
    ordered = frame.sort("trajectory_id", "turn_index")
    return {
        str(key[0]): part["trace"].to_list() for key, part in ordered.group_by("trajectory_id", maintain_order=True)
    }


def sized(count: int, scale: float) -> int:
    """A number of rows at this scale, two or more."""
    return max(2, round(count * scale))


def spread(items: Sequence[str], count: int) -> list[str]:
    """`count` items at equal distances (all, where there are fewer)."""
    count = min(count, len(items))
    return [items[number * len(items) // count] for number in range(count)]


def split(rows: Ragged, parts: int) -> list[Ragged]:
    """The rows in `parts` runs."""
    return [rows.take(chosen) for chosen in np.array_split(np.arange(len(rows)), parts) if len(chosen)]
