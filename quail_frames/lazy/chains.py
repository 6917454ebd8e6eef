"""From an `Ask` of the logical plan to the `Chain` that an engine runs, and its texts and masks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import polars as pl

from quail_frames.lazy.inputs import as_text
from quail_frames.lazy.marker import answer_dtype
from quail_frames.plan.calls import AiCall
from quail_frames.plan.conditions import Condition, conjunction, renumbered
from quail_frames.plan.logical import Ask, Expression
from quail_frames.plan.physical import AnswerOutput, Chain, PlannedCall

Resolve = Callable[[AiCall, tuple[int, ...], tuple[int, ...]], PlannedCall]


@dataclass(frozen=True)
class ReadyChain:
    """A chain and how its input columns come from a frame.

    `columns` are the texts and masks as Polars expressions; `dtypes` the types of the answer columns.
    """

    chain: Chain
    columns: list[pl.Expr]
    dtypes: dict[str, pl.DataType]


def ready_chain(ask: Ask, resolve: Resolve) -> ReadyChain:
    """The chain of an `Ask`, with layout and scoring of each call chosen by the engine."""
    texts = _distinct([text for use in ask.calls for text in use.inputs])
    masks = _distinct([mask for predicate in ask.keep if predicate.test for mask in predicate.test.masks])
    numbers = {use.column: number for number, use in enumerate(ask.calls)}
    places = {key: number for number, key in enumerate(texts)}
    anchors = dict(ask.anchors)
    planned = tuple(
        resolve(use.call, tuple(places[text.key] for text in use.inputs), anchors.get(use.column, ()))
        for use in ask.calls
    )
    chain = Chain(
        inputs=tuple(f"text {i}" for i in range(len(texts))),
        masks=tuple(f"mask {i}" for i in range(len(masks))),
        calls=planned,
        order=tuple(numbers[column] for column in ask.order or numbers),
        keep=conjunction([_renumbered(predicate, numbers, list(masks)) for predicate in ask.keep]),
        outputs=tuple(AnswerOutput(use.column, numbers[use.column]) for use in ask.answers),
        limit=ask.limit,
        retain=ask.retain,
        retain_all=ask.retain_all,
        remember=tuple(numbers[column] for column in ask.remember),
    )
    columns = [as_text(text.body).alias(name) for text, name in zip(texts.values(), chain.inputs, strict=True)]
    columns += [mask.body.cast(pl.Boolean).alias(name) for mask, name in zip(masks.values(), chain.masks, strict=True)]
    return ReadyChain(chain, columns, {use.column: answer_dtype(use.call) for use in ask.answers})


def _distinct(expressions: list[Expression]) -> dict[str, Expression]:
    return {expression.key: expression for expression in expressions}


def _renumbered(predicate: Expression, calls: dict[str, int], masks: list[str]) -> Condition:
    """The predicate's condition with the chain's numbers of calls and masks."""
    assert predicate.test is not None, "a predicate of an Ask has a test"
    test = predicate.test
    own_calls = [calls[use.column] for use in predicate.calls]
    return renumbered(test.condition, own_calls, [masks.index(mask.key) for mask in test.masks])
