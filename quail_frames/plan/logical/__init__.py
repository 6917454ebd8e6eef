"""The logical plan: the user's steps as plain data that rules can rewrite.

Expressions and frames of the front end are opaque here; beside each stands what a rule
may know of it (columns read, calls held, whether a row's value depends on that row
alone). A rule leaves alone what it cannot read: None always means "not known".
"""

from __future__ import annotations

from quail_frames.plan.logical.expression import ANSWER, CallUse, Expression, Names, Test, union
from quail_frames.plan.logical.names import columns, expressions, holds_calls, names_of
from quail_frames.plan.logical.nodes import (
    AnyNode,
    Ask,
    AskPairs,
    Binary,
    Concat,
    Filter,
    Join,
    JoinKind,
    Node,
    PairKind,
    Project,
    Select,
    Side,
    Slice,
    Source,
    Step,
    Unary,
    WithColumns,
)
from quail_frames.plan.logical.walking import asks, inputs, rewrite, source_rows, walk, with_inputs

__all__ = [
    "ANSWER",
    "AnyNode",
    "Ask",
    "AskPairs",
    "Binary",
    "CallUse",
    "Concat",
    "Expression",
    "Filter",
    "Join",
    "JoinKind",
    "Names",
    "Node",
    "PairKind",
    "Project",
    "Select",
    "Side",
    "Slice",
    "Source",
    "Step",
    "Test",
    "Unary",
    "WithColumns",
    "asks",
    "columns",
    "expressions",
    "holds_calls",
    "inputs",
    "names_of",
    "rewrite",
    "source_rows",
    "union",
    "walk",
    "with_inputs",
]
