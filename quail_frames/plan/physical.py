"""The physical plan: what the runtime is told to do, as plain data.

The lazy layer pulls record batches of inputs through `Engine.run`; relational work stays
on its side. Two operators exist: a `Chain` asks calls of rows, a `PairJoin` asks one call
of pairs of rows.

Input of a chain, one Arrow record batch at a time:
    columns `inputs[i]`  Utf8 (the texts; null where the row's value is null)
    columns `masks[j]`   Boolean (conditions already decided by the other columns)
Output, in input order: the batch `{"row": UInt64, outputs...}` of rows that were kept,
where `row` counts the input rows of the whole run from zero. The schema metadata `decided`
is the number of input rows decided so far, kept or not; a batch may have no row.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from quail_frames.plan.calls import AiCall
from quail_frames.plan.conditions import Condition


@dataclass(frozen=True)
class PlannedCall:
    """A call with its physical choices made.

    `inputs[k]` is the number of the chain's input column that fills slot k of the call.
    `anchors` are the slots of the anchor side where the call is asked of joined pairs: its
    prompt is then laid out like the join's, on the anchor's document.
    """

    call: AiCall
    inputs: tuple[int, ...]
    layout: Literal["document_first", "question_first"]
    scoring: Literal["true_false", "letters", "trie_decode", "trie_tree", "decision_choice"]
    selectivity: float = 0.2
    anchors: tuple[int, ...] = ()


@dataclass(frozen=True)
class AnswerOutput:
    """Column `name` holds the answer of call number `call` (null where the row was not asked)."""

    name: str
    call: int


@dataclass(frozen=True)
class ConditionOutput:
    """Boolean column `name` holds the value of `condition`."""

    name: str
    condition: Condition


@dataclass(frozen=True)
class Chain:
    """Calls asked of each row, at first in `order`, as far as `keep` and `outputs` need them.

    A row leaves as soon as `keep` is decided FALSE, or a top-level conjunct of it NULL.
    """

    inputs: tuple[str, ...]
    masks: tuple[str, ...]
    calls: tuple[PlannedCall, ...]
    order: tuple[int, ...]
    keep: Condition | None
    outputs: tuple[AnswerOutput | ConditionOutput, ...]
    limit: int | None = None
    """Stop once this many rows were kept (the first ones in row order)."""
    retain: bool = False
    """Keep the surviving documents' KV resident: a later operator asks them again (until `Engine.end`)."""
    retain_all: bool = False
    """Those of dropped rows as well: a later operator reads the same texts."""
    learn: bool = True
    """Whether the calls of `keep` may change places as their answers come; False keeps `order` throughout."""
    remember: tuple[int, ...] = ()
    """Calls that another operator of the query asks as well: of the same texts only once (until `Engine.end`)."""


@dataclass(frozen=True)
class PairJoin:
    """One TRUE/FALSE call asked of pairs (anchor row, partner row).

    `call.inputs` number the columns of both sides: `anchor_inputs` first, then
    `partner_inputs`. Candidate pairs arrive as ranges of partners for each anchor, so
    equality keys and conditions have already cut them; they are never a materialised list.
    """

    anchor_inputs: tuple[str, ...]
    partner_inputs: tuple[str, ...]
    call: PlannedCall
    stop: Literal["never", "first_true"] = "never"
    """`first_true`: an anchor is decided by its first TRUE (semi and anti joins)."""
    retain: bool = False
    remember: bool = False
    """Another join of the query asks the same: of the same two texts only once (until `Engine.end`)."""


PhysicalOperator = Chain | PairJoin
