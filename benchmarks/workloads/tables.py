"""The tables that the queries read, at a size: from the data pack where it is, else from the samples in examples/data.

Where the samples lack a table it is made of another: traces of reviews that grow line by line, contracts of
abstracts one after the other.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache

import polars as pl

from benchmarks import data

ASPECTS = (
    *("acting", "plot", "music", "dialogue", "camera work", "special effects"),
    *("humour", "violence", "romance", "pacing", "costumes", "ending"),
)


@dataclass(frozen=True)
class Size:
    """How much of each table: its first rows, or a share of them, and the heads of its texts.

    `base` names the kind of size; `rows` None: all; `most` caps tables by name. A trace keeps some `characters` for
    each turn, so that it still grows.
    """

    base: str
    rows: int | None = None
    most: dict[str, int] = field(default_factory=dict)
    characters: int | None = None
    turns: int | None = None
    factor: float = 1.0

    @property
    def name(self) -> str:
        """How a caption calls it."""
        rows = f", {self.rows} rows" if self.rows is not None and not self.most else ""
        return self.base + rows + (f" x{self.factor:g}" if self.factor != 1 else "")

    def scaled(self, factor: float) -> Size:
        """The same with so many times the rows."""
        rows = None if self.rows is None else max(1, round(self.rows * factor))
        most = {name: max(1, round(count * factor)) for name, count in self.most.items()}
        return Size(self.base, rows, most, self.characters, self.turns, factor)

    def rows_of(self, table: str) -> int | None:
        """Rows of a table; None: all."""
        return self.most.get(table, self.rows)


FULL = Size("full")
SLICE = Size(
    "slice",
    rows=12,
    most={"reviews": 4, "evidence": 4, "claims": 5, "contracts": 3, "traces": 8, "turns": 8, "messages": 16},
    characters=700,
    turns=4,
)
"""Some ten thousand tokens for each of the larger queries: minutes on two cores."""
TINY = Size("tiny", rows=4, characters=120, turns=3)
"""For tests with the oracle."""


def table(name: str, size: Size) -> pl.DataFrame:
    """A table at a size.

    Raises
    ------
    FileNotFoundError
        Neither the data pack nor the samples have it, nor what it is made of.
    """
    return MAKERS[name](size)


@cache
def source(name: str) -> pl.DataFrame:
    """A table as it is stored."""
    frame = data.table(name)
    if frame is None:
        places = ", ".join(map(str, data.folders()))
        raise FileNotFoundError(f"no table {name!r} in {places}; set {data.VARIABLE} to the folder that has it")
    return frame


def _stored(name: str, stored: str, text: str, *others: str) -> Callable[[Size], pl.DataFrame]:
    """A stored table's rows with an id and these columns; its texts cut."""

    def make(size: Size) -> pl.DataFrame:
        frame = source(stored).select("id", *others, text)
        frame = frame if size.rows_of(name) is None else frame.head(size.rows_of(name))
        return frame if size.characters is None else frame.with_columns(pl.col(text).str.head(size.characters))

    return make


def _aspects(size: Size) -> pl.DataFrame:
    names = ASPECTS[: size.rows_of("aspects")]
    return pl.DataFrame({"id": [f"as-{number:02d}" for number in range(1, len(names) + 1)], "aspect": names})


def _evidence(size: Size) -> pl.DataFrame:
    """Abstracts, those that a claim cites first, so that a slice has both sides of a pair."""
    cited = source("claim_evidence")["evidence_id"].unique().implode()
    frame = source("evidence").with_columns(is_cited=pl.col("id").is_in(cited))
    if "n_sentences" not in frame.columns:
        frame = frame.with_columns(n_sentences=pl.col("text").str.count_matches(r"\. ").cast(pl.Int64) + 1)
    frame = frame.select("id", "title", "text", "n_sentences", "is_cited").sort("is_cited", descending=True)
    frame = frame if size.rows_of("evidence") is None else frame.head(size.rows_of("evidence"))
    return frame if size.characters is None else frame.with_columns(pl.col("text").str.head(size.characters))


def _claim_evidence(size: Size) -> pl.DataFrame:
    """Gold pairs of the claims and abstracts at hand."""
    claims, evidence = table("claims", size), table("evidence", size)
    pairs = source("claim_evidence").select("id", "claim_id", "evidence_id")
    known = pl.col("claim_id").is_in(claims["id"].implode()) & pl.col("evidence_id").is_in(evidence["id"].implode())
    return pairs.filter(known)


def _claims(size: Size) -> pl.DataFrame:
    """Claims, those with evidence at hand first."""
    near = source("claim_evidence").filter(pl.col("evidence_id").is_in(table("evidence", size)["id"].implode()))
    first = pl.col("id").is_in(near["claim_id"].implode())
    frame = source("claims").select("id", "text").sort(first, descending=True, maintain_order=True)
    return frame if size.rows_of("claims") is None else frame.head(size.rows_of("claims"))


def _traces(size: Size) -> pl.DataFrame:
    """Snapshots of runs, each the whole one before it and more."""
    frame = data.table("agent_traces")
    if frame is None:
        frame = _grown_reviews()
    frame = frame.select("id", "trajectory_id", "turn_index", "repo", "trace").sort("trajectory_id", "turn_index")
    if size.turns is not None:
        frame = frame.filter(pl.col("turn_index") < size.turns)
    if size.rows_of("traces") is not None:
        frame = frame.head(size.rows_of("traces"))
    if size.characters is None:
        return frame
    return frame.with_columns(pl.col("trace").str.head(size.characters * (pl.col("turn_index") + 2) // 2))


def _grown_reviews() -> pl.DataFrame:
    """Reviews that grow line by line, in the columns of traces."""
    lines = source("reviews").select(
        trajectory_id="id", repo="label", line=pl.col("text").str.split("\n").list.head(12)
    )
    grown = lines.with_columns(turn_index=pl.int_ranges(pl.col("line").list.len())).explode("turn_index")
    return grown.select(
        pl.format("{}-{}", "trajectory_id", "turn_index").alias("id"),
        "trajectory_id",
        pl.col("turn_index").cast(pl.Int32),
        "repo",
        trace=pl.col("line").list.head(pl.col("turn_index") + 1).list.join("\n"),
    )


def _turns(size: Size) -> pl.DataFrame:
    """What each turn of a run added to its trace."""
    known = pl.col("trace").shift(1).over("trajectory_id").str.len_chars().fill_null(0)
    frame = _traces(Size(size.base, turns=size.turns)).select(
        "id",
        "trajectory_id",
        "turn_index",
        next_index=pl.col("turn_index") + 1,
        message=pl.col("trace").str.slice(known),
    )
    frame = frame if size.rows_of("turns") is None else frame.head(size.rows_of("turns"))
    return frame if size.characters is None else frame.with_columns(pl.col("message").str.head(size.characters))


def _contracts(size: Size) -> pl.DataFrame:
    """Long texts: in a slice some are longer than its context, some not."""
    frame = data.table("contracts")
    if frame is None:
        texts = source("evidence")["text"].to_list()
        joined = ["\n\n".join(texts[start:] + texts[:start]) for start in range(len(texts))]
        frame = pl.DataFrame({"id": [f"con-{n:03d}" for n in range(len(joined))], "text": joined})
    frame = frame.select("id", "text")
    frame = frame if size.rows_of("contracts") is None else frame.head(size.rows_of("contracts"))
    if size.characters is None:
        return frame
    grown = (pl.int_range(pl.len()) % 2 + 1) * 5 * size.characters
    return frame.with_columns(pl.col("text").str.head(grown))


MAKERS: dict[str, Callable[[Size], pl.DataFrame]] = {
    "aspects": _aspects,
    "claim_evidence": _claim_evidence,
    "claims": _claims,
    "contracts": _contracts,
    "evidence": _evidence,
    "messages": _stored("messages", "support_messages", "text", "intent"),
    "reactions": _stored("reactions", "reactions", "text"),
    "report_reactions": _stored("report_reactions", "report_reactions", "span", "report_id"),
    "reports": _stored("reports", "reports", "text", "has_adverse_event"),
    "reviews": _stored("reviews", "reviews", "text", "label"),
    "traces": _traces,
    "turns": _turns,
}
