"""Where something stands in the SQL text, and errors that say so."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from polars.exceptions import PolarsError
from sqlglot import exp

from quail_frames.errors import QuailFramesError, SqlError

Problem = tuple[int, int, str]


def mark_places(tree: Any, text: str) -> None:
    """Note for every node that knows its first character in which line and column that is, from 1."""
    for node in tree.walk():
        start = node.meta.get("start")
        if start is not None:
            line = text.count("\n", 0, start)
            node.meta["place"] = (line + 1, start - text.rfind("\n", 0, start))


def place(node: Any) -> tuple[int, int]:
    """Line and column of the node: its own, else the first below it, else that of what it stands in."""
    above = node
    while above is not None:
        found: list[tuple[int, int]] = [below.meta["place"] for below in above.walk() if "place" in below.meta]
        if found:
            return found[0] if "place" in above.meta else min(found)
        above = above.parent
    return 1, 1


def problem(node: Any, message: str) -> Problem:
    """What is wrong at this node."""
    return (*place(node), message)


def fail(node: Any, message: str) -> NoReturn:
    """Raise one problem."""
    raise SqlError([problem(node, message)])


@contextmanager
def errors_at(node: exp.Expr) -> Iterator[None]:
    """Errors of a step that this node asks for are errors at this node."""
    try:
        yield
    except SqlError:
        raise
    except QuailFramesError as error:
        raise SqlError([problem(node, str(error))]) from error
    except PolarsError as error:
        reason = str(error).split("\n\nResolved plan until failure")[0].strip()
        raise SqlError([problem(node, f"Polars cannot do this: {reason}")]) from error
