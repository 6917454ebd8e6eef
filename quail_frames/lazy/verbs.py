"""The AI verbs of a frame under a namespace, planned or eager, with the signatures of `LazyFrame`'s own."""

from __future__ import annotations

from collections.abc import Callable
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec

import polars as pl

from quail_frames.lazy.frame import LazyFrame, lazy

P = ParamSpec("P")
Planned = Callable[Concatenate[LazyFrame, P], LazyFrame]


def _lazy_verb(method: Planned[P]) -> Callable[Concatenate[Any, P], LazyFrame]:
    def verb(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> LazyFrame:
        return method(self._frame, *args, **kwargs)

    update_wrapper(verb, method)
    return verb


def _eager_verb(method: Planned[P]) -> Callable[Concatenate[Any, P], pl.DataFrame]:
    def verb(self: Any, /, *args: P.args, **kwargs: P.kwargs) -> pl.DataFrame:
        return method(self._frame, *args, **kwargs).collect()

    update_wrapper(verb, method)
    return verb


class Verbs:
    """`frame.ai` of a lazy frame: each verb gives a planned `LazyFrame`."""

    def __init__(self, frame: pl.LazyFrame | LazyFrame) -> None:
        self._frame = lazy(frame)

    filter = _lazy_verb(LazyFrame.ai_filter)
    score = _lazy_verb(LazyFrame.ai_score)
    classify = _lazy_verb(LazyFrame.ai_classify)
    join = _lazy_verb(LazyFrame.ai_join)


class EagerVerbs:
    """`frame.ai` of an eager frame: each verb asks at once and gives a `pl.DataFrame`."""

    def __init__(self, frame: pl.DataFrame) -> None:
        self._frame = lazy(frame)

    filter = _eager_verb(LazyFrame.ai_filter)
    score = _eager_verb(LazyFrame.ai_score)
    classify = _eager_verb(LazyFrame.ai_classify)
    join = _eager_verb(LazyFrame.ai_join)


def callable_namespace(verbs: type, name: str) -> type:
    """A Polars namespace that is the verb itself: `frame.ai_filter(...)`."""
    verb = vars(verbs)[name]
    return type(f"Ai{name.title()}", (verbs,), {"__call__": verb, "__doc__": verb.__doc__})
