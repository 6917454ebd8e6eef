"""The logical plan: the user's steps as plain data that rules can rewrite.

Expressions and frames of the front end are opaque here; beside each stands what a rule
may know of it (columns read, calls held, whether a row's value depends on that row
alone). A rule leaves alone what it cannot read: None always means "not known".
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

from quail_frames.plan.calls import AiCall
from quail_frames.plan.conditions import Condition

ANSWER = "quail-frames answer "
"""Start of the name of every answer column: a column that holds a call's answers on their way to their use."""

Names = frozenset[str]
JoinKind = Literal["inner", "left", "right", "full", "semi", "anti", "cross"]
PairKind = Literal["inner", "left", "semi", "anti"]
Side = Literal["left", "right"]


@dataclass(frozen=True)
class Expression:
    """One expression of the front end.

    Parameters
    ----------
    body
        The expression itself, over ordinary columns and the answer columns of `calls`.
    key
        Equal for equal expressions.
    names
        Names of the columns it gives.
    text
        How `explain` shows it.
    reads
        Ordinary columns that the body reads; None: not known.
    row_local
        Whether each row's value depends on that row alone.
    calls
        The calls whose answer columns the body reads.
    test
        The same predicate as a condition, where it is exactly one.
    column
        The column that it passes on unchanged, under its own or another name.
    over_answers
        The same predicate over the answers themselves, where it reads columns that hold them.
    """

    body: Any = field(compare=False, repr=False)
    key: str
    names: tuple[str, ...]
    text: str
    reads: Names | None
    row_local: bool
    calls: tuple[CallUse, ...] = ()
    test: Test | None = None
    column: str | None = None
    over_answers: Expression | None = None

    @property
    def needs(self) -> Names | None:
        """Columns that the body needs in its frame, answer columns included; None: not known."""
        return None if self.reads is None else self.reads | {call.column for call in self.calls}


@dataclass(frozen=True)
class CallUse:
    """A call asked of rows: `inputs[i]` gives the text of its input i, `column` is its answer column.

    Equal questions about equal inputs have equal answer columns, wherever they stand.
    """

    call: AiCall
    inputs: tuple[Expression, ...]
    column: str

    @property
    def reads(self) -> Names | None:
        """Columns that the inputs read."""
        return union(expression.reads for expression in self.inputs)


@dataclass(frozen=True)
class Test:
    """A predicate as a condition: its calls and masks are numbered as in the expression's `calls` and in `masks`."""

    __test__ = False  # pytest: not a test class

    condition: Condition
    masks: tuple[Expression, ...] = ()


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
    """

    input: Node
    keep: tuple[Expression, ...] = ()
    answers: tuple[CallUse, ...] = ()
    order: tuple[str, ...] = ()
    limit: int | None = None
    carry: tuple[str, ...] | None = None
    anchors: tuple[tuple[str, tuple[int, ...]], ...] = ()
    retain: bool = False

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
        Anchors with a partner stay in KV memory, for an operator above asks about them again.
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
Node = Source | Unary | Binary
AnyNode = TypeVar("AnyNode", Unary, Binary)


def inputs(node: Node) -> tuple[Node, ...]:
    """The nodes that this one reads."""
    if isinstance(node, Source):
        return ()
    return (node.left, node.right) if isinstance(node, Binary) else (node.input,)


def with_inputs(node: Node, new: tuple[Node, ...]) -> Node:
    """The same node over other inputs."""
    if new == inputs(node) and all(a is b for a, b in zip(new, inputs(node), strict=True)):
        return node
    if isinstance(node, Source):
        return node
    return replace(node, left=new[0], right=new[1]) if isinstance(node, Binary) else replace(node, input=new[0])


def rewrite(node: Node, rule: Callable[[Node], Node]) -> Node:
    """`rule` applied to every node, inputs first."""
    return rule(with_inputs(node, tuple(rewrite(below, rule) for below in inputs(node))))


def walk(node: Node) -> Iterable[Node]:
    """The node and everything below it, from the top."""
    yield node
    for below in inputs(node):
        yield from walk(below)


def asks(node: Node) -> bool:
    """Whether a model is asked at this node or below."""
    return any(isinstance(below, Ask | AskPairs) for below in walk(node))


def source_rows(node: Node) -> int | None:
    """Rows of the first source below, following the left side of joins; None where they are not known."""
    while not isinstance(node, Source):
        node = inputs(node)[0]
    return node.rows


def expressions(node: Node) -> tuple[Expression, ...]:
    """The expressions that the front end evaluates at this node."""
    if isinstance(node, Filter):
        return node.predicates
    return node.expressions if isinstance(node, WithColumns | Select | Step) else ()


def names_of(found: Iterable[Expression]) -> tuple[str, ...]:
    """Names of the columns that the expressions give."""
    return tuple(name for expression in found for name in expression.names)


def columns(node: Node) -> tuple[str, ...]:
    """Names of the node's columns."""
    if isinstance(node, Source | Project):
        return node.columns
    if isinstance(node, Select):
        return (*names_of(node.expressions), *node.carry)
    if isinstance(node, Join):
        return _present(node.columns, (*columns(node.left), *columns(node.right)), _side_columns(node))
    if isinstance(node, AskPairs):
        return _pair_columns(node) if node.carry is None else node.carry
    below = columns(node.input)
    if isinstance(node, WithColumns):
        return tuple(dict.fromkeys((*below, *names_of(node.expressions))))
    if isinstance(node, Step):
        return _present(node.columns, below, node.input_columns)
    if isinstance(node, Ask):
        return (*(below if node.carry is None else node.carry), *node.answer_columns)
    return below


def union(found: Iterable[Names | None]) -> Names | None:
    """All names; None where one of the sets is not known."""
    total: Names = frozenset()
    for names in found:
        if names is None:
            return None
        total |= names
    return total


def _side_columns(node: Join) -> tuple[str, ...]:
    return tuple(name for name, _ in (*node.left_names, *node.right_names))


def _pair_columns(node: AskPairs) -> tuple[str, ...]:
    """Columns of both sides, and the left side's answer columns that ride along."""
    left, right = columns(node.left), columns(node.right)
    named = [after for name, after in node.left_names if name in left]
    riding = [name for name in left if name.startswith(ANSWER) and name not in named]
    return (*named, *(after for name, after in node.right_names if name in right), *riding)


def _present(recorded: tuple[str, ...], below: tuple[str, ...], recorded_below: tuple[str, ...]) -> tuple[str, ...]:
    """Recorded columns without those pruned below since, and the answer columns that ride along."""
    gone = set(recorded_below) - set(below)
    riding = [name for name in below if name.startswith(ANSWER) and name not in recorded]
    return (*(name for name in recorded if name not in gone), *riding)
