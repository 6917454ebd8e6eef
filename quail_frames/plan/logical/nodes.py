"""The nodes of a logical plan: the user's steps, and the AI operators that rules make of them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from quail_frames.plan.calls import AiCall
from quail_frames.plan.logical.expression import CallUse, Expression, Names, union

JoinKind = Literal["inner", "left", "right", "full", "semi", "anti", "cross"]
PairKind = Literal["inner", "left", "semi", "anti"]
Side = Literal["left", "right"]


@dataclass(frozen=True)
class Source:
    """A frame of the front end."""

    frame: Any = field(compare=False, repr=False)
    text: str
    columns: tuple[str, ...]
    rows: int | None = None
    """Number of rows where it is known without reading."""


@dataclass(frozen=True)
class Filter:
    """Rows for which every predicate is TRUE; all are evaluated on the input's rows."""

    input: Node
    predicates: tuple[Expression, ...]


@dataclass(frozen=True)
class WithColumns:
    """The input's columns and these, which replace columns of the same name."""

    input: Node
    expressions: tuple[Expression, ...]


@dataclass(frozen=True)
class Select:
    """These columns, and `carry`: answer columns passed on for a later use."""

    input: Node
    expressions: tuple[Expression, ...]
    carry: tuple[str, ...] = ()


@dataclass(frozen=True)
class Project:
    """Columns chosen by name."""

    input: Node
    columns: tuple[str, ...]


@dataclass(frozen=True)
class Slice:
    """`length` rows from `offset` on; None: to the end."""

    input: Node
    offset: int
    length: int | None


@dataclass(frozen=True)
class Step:
    """Any other operation on one frame, done by the front end.

    Parameters
    ----------
    apply
        The operation, from frame to frame.
    input_columns, columns
        Names before and after, as recorded.
    expressions
        The expressions among its arguments.
    reads
        Columns that it looks at; None: all, or not known.
    changes
        Columns whose values it may change; None: not known.
    carries
        Columns that it does not know of ride along with their rows, unharmed.
    streams
        It may be applied to a frame piece by piece.
    commutes
        It only reorders rows: filtering before or after gives the same.
    keyed
        Columns on which all rows agree that it makes one of: filtering on them before or after gives the same.
    detail
        Arguments for who writes the plan in another language; rules do not look at it.
    """

    input: Node
    name: str
    text: str
    apply: Callable[[Any], Any] = field(compare=False, repr=False)
    input_columns: tuple[str, ...]
    columns: tuple[str, ...]
    expressions: tuple[Expression, ...] = ()
    reads: Names | None = None
    changes: Names | None = None
    carries: bool = False
    streams: bool = False
    commutes: bool = False
    keyed: Names = frozenset()
    detail: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Join:
    """A join with another frame by Polars' own kinds.

    `left_names` and `right_names` say under which name each side's columns leave it, in
    pairs (name in the side, name after the join). `detail` holds the keys, as pairs of
    expressions, for who writes the plan in another language.
    """

    left: Node
    right: Node
    how: JoinKind
    text: str
    apply: Callable[[Any, Any], Any] = field(compare=False, repr=False)
    columns: tuple[str, ...]
    left_names: tuple[tuple[str, str], ...]
    right_names: tuple[tuple[str, str], ...]
    left_reads: Names | None
    right_reads: Names | None
    keeps_left_order: bool = False
    detail: Any = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Concat:
    """The rows of several frames one after the other: these columns of each, in the wider of their types.

    `alike` says that the frames' types are the same, so that an expression means the same on each.
    """

    inputs: tuple[Node, ...]
    columns: tuple[str, ...]
    alike: bool


@dataclass(frozen=True)
class Ask:
    """The AI operator on rows: keeps the rows that pass `keep` and adds the answer columns of `answers`.

    Parameters
    ----------
    keep
        Predicates with a `test`; a row stays where all are TRUE.
    answers
        Calls whose answers are wanted as columns.
    order
        Answer columns of all calls in the order they are asked; empty: as they stand.
    limit
        Stop once this many rows were kept.
    carry
        Columns of the input that are passed on; None: all.
    anchors
        For calls about both sides of an AI join: answer column and the slots that come from its anchor side.
    retain
        Documents of kept rows stay in KV memory, for an operator above asks about them again.
    retain_all
        Those of dropped rows as well: another branch asks about them.
    remember
        Answer columns of the calls that another operator asks as well: of the same texts only once.
    """

    input: Node
    keep: tuple[Expression, ...] = ()
    answers: tuple[CallUse, ...] = ()
    order: tuple[str, ...] = ()
    limit: int | None = None
    carry: tuple[str, ...] | None = None
    anchors: tuple[tuple[str, tuple[int, ...]], ...] = ()
    retain: bool = False
    retain_all: bool = False
    remember: tuple[str, ...] = ()

    @property
    def calls(self) -> tuple[CallUse, ...]:
        """Every call once, those of `keep` first."""
        found = [call for predicate in self.keep for call in predicate.calls]
        return tuple({call.column: call for call in [*found, *self.answers]}.values())

    @property
    def reads(self) -> Names | None:
        """Columns that texts and masks are made of."""
        masks = [mask.reads for predicate in self.keep if predicate.test for mask in predicate.test.masks]
        return union([*(call.reads for call in self.calls), *masks])

    @property
    def answer_columns(self) -> tuple[str, ...]:
        """Names of the columns added."""
        return tuple(call.column for call in self.answers)


@dataclass(frozen=True)
class AskPairs:
    """The AI join: pairs of a left and a right row for which the answer to `call` is TRUE.

    Rows come in the order of the left side, each left row's partners in the order of the right.

    Parameters
    ----------
    slots
        For each slot of the call: the side and the name of its column there.
    keys
        Expressions of the left and the right side that must be equal.
    where
        Predicates over the columns of both sides; right ones go by `where_names`.
    left_names, right_names, where_names
        Columns of a side: name in the side, name after the join (or in `where`).
    anchor
        The side whose documents stay in KV memory while the other's pass by; None: not chosen yet.
    carry
        Columns that are passed on, by their names after the join; None: all.
    retain
        Anchors stay in KV memory, for an operator above or in another branch asks about them again.
    remember
        Another join asks the same: of the same two texts only once.
    """

    left: Node
    right: Node
    how: PairKind
    call: AiCall
    slots: tuple[tuple[Side, str], ...]
    keys: tuple[tuple[Expression, Expression], ...]
    where: tuple[Expression, ...]
    left_names: tuple[tuple[str, str], ...]
    right_names: tuple[tuple[str, str], ...]
    where_names: tuple[tuple[str, str], ...]
    anchor: Side | None = None
    carry: tuple[str, ...] | None = None
    retain: bool = False
    remember: bool = False

    def inputs_of(self, side: Side) -> tuple[str, ...]:
        """The side's columns that the call reads, in slot order."""
        return tuple(name for own, name in self.slots if own == side)

    def reads_of(self, side: Side) -> Names:
        """The side's columns that keys, predicates and the call read."""
        keys = frozenset().union(*(pair[side == "right"].reads or () for pair in self.keys))
        where = frozenset().union(*(predicate.reads or () for predicate in self.where))
        names = self.left_names if side == "left" else self.where_names
        return keys | set(self.inputs_of(side)) | {name for name, in_where in names if in_where in where}


Unary = Filter | WithColumns | Select | Project | Slice | Step | Ask
Binary = Join | AskPairs
Node = Source | Unary | Binary | Concat
AnyNode = TypeVar("AnyNode", Unary, Binary)
