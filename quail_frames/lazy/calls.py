"""From what the user writes to an immutable call: templates, labels and options, checked.

Whatever needs no frame is checked here, when the expression is built; columns and their
types are checked when it meets a frame (`quail_frames.lazy.inputs`).
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from numbers import Real
from typing import Any, TypeVar

from quail_frames.errors import CallError
from quail_frames.lazy.prompts import check_characters, has_placeholder, parse_template, shown
from quail_frames.plan.calls import (
    LAYOUTS,
    OVERFLOWS,
    SCORINGS,
    AiClassify,
    AiIf,
    AiScore,
    Layout,
    Overflow,
    Scoring,
)

MIN_LABELS, MAX_LABELS = 2, 255
MAX_DESCRIPTION_WORDS, MAX_TASK_WORDS = 25, 50

Question = TypeVar("Question", AiIf, AiScore)
Choice = TypeVar("Choice", bound=str)


def build_question(
    kind: type[Question],
    template: str,
    columns: Sequence[str],
    *,
    selectivity: float | None,
    layout: Layout,
    overflow: Overflow,
) -> Question:
    """An `AiIf` or `AiScore` of this template and these explicit columns."""
    parsed, names = parse_template(template, columns)
    return kind(parsed, names, **_options(selectivity, layout, overflow))


def build_classify(
    input: str,
    labels: Sequence[str],
    *,
    explicit: bool = False,
    descriptions: Mapping[str, str] | Sequence[str | None] | None,
    task_description: str | None,
    selectivity: float | None,
    layout: Layout,
    scoring: Scoring,
    overflow: Overflow,
    probabilities: bool,
) -> AiClassify:
    """An `AiClassify` of a column (`explicit`, or a name without braces) or of a template."""
    plain = explicit or not has_placeholder(input)
    template, names = parse_template("{0}", [input]) if plain else parse_template(input)
    checked = check_labels(labels)
    if not isinstance(probabilities, bool):
        raise CallError(f"probabilities={probabilities!r} is neither True nor False")
    return AiClassify(
        template,
        names,
        **_options(selectivity, layout, overflow),
        labels=checked,
        descriptions=check_descriptions(descriptions, checked),
        task_description=_check_task(task_description),
        scoring=_choice("scoring", scoring, SCORINGS),
        probabilities=probabilities,
    )


def check_labels(labels: Sequence[str]) -> tuple[str, ...]:
    """The labels, or an error that names the one at fault."""
    if isinstance(labels, str) or not isinstance(labels, Sequence):
        raise CallError(f"labels must be a list of str, not {type(labels).__name__}: {labels!r}")
    seen: dict[str, str] = {}
    for number, label in enumerate(labels):
        if not isinstance(label, str):
            raise CallError(f"label {number} is {label!r}, a {type(label).__name__}: labels are str")
        if not label.strip():
            raise CallError(f"label {number} is empty: every label needs a text")
        check_characters(f"label {number}", label)
        folded = unicodedata.normalize("NFC", unicodedata.normalize("NFC", label.strip()).casefold())
        if folded in seen:
            raise CallError(f"labels {seen[folded]!r} and {label!r} are the same, ignoring case: keep one of them")
        seen[folded] = label
    if not MIN_LABELS <= len(labels) <= MAX_LABELS:
        raise CallError(f"a classification takes {MIN_LABELS} to {MAX_LABELS} labels, not {len(labels)}")
    return tuple(labels)


def check_descriptions(
    descriptions: Mapping[str, str] | Sequence[str | None] | None, labels: tuple[str, ...]
) -> tuple[str | None, ...] | None:
    """One description (or None) a label, in the labels' order."""
    if descriptions is None:
        return None
    if isinstance(descriptions, Mapping):
        for name in descriptions:
            if name not in labels:
                raise CallError(
                    f"a description is given for {name!r}, which is not a label{nearest(str(name), labels)}"
                )
        found = tuple(descriptions.get(label) for label in labels)
    elif isinstance(descriptions, Sequence) and not isinstance(descriptions, str | bytes):
        found = tuple(descriptions)
    else:
        raise CallError(
            f"descriptions are a dict by label or a list, not {type(descriptions).__name__}: {descriptions!r}"
        )
    if len(found) != len(labels):
        raise CallError(f"{len(found)} descriptions are given for {len(labels)} labels: give one a label, or a dict")
    for label, description in zip(labels, found, strict=True):
        _check_words(f"the description of label {label!r}", description, MAX_DESCRIPTION_WORDS)
    return found


def nearest(name: str, valid: Sequence[str]) -> str:
    """`; did you mean 'x'?` for the nearest valid name, else the valid names, ready to end a message."""
    close = get_close_matches(name, valid, n=1, cutoff=0.5)
    folded = [other for other in valid if other.casefold() == name.casefold()]
    if folded or close:
        return f"; did you mean {(folded or close)[0]!r}?"
    some = ", ".join(repr(other) for other in list(valid)[:8])
    more = ", …" if len(valid) > 8 else ""
    return f"; valid names: {some}{more}" if valid else ""


def _options(selectivity: float | None, layout: Layout, overflow: Overflow) -> dict[str, Any]:
    return {
        "selectivity": _check_selectivity(selectivity),
        "layout": _choice("layout", layout, LAYOUTS),
        "overflow": _choice("overflow", overflow, OVERFLOWS),
    }


def _check_selectivity(selectivity: float | None) -> float | None:
    if selectivity is None:
        return None
    number = isinstance(selectivity, Real) and not isinstance(selectivity, bool)  # NumPy's numbers too
    if not number or math.isnan(selectivity) or not 0 <= selectivity <= 1:
        raise CallError(f"selectivity is the share of rows kept, a number from 0 to 1, not {selectivity!r}")
    return float(selectivity)


def _check_task(task: str | None) -> str | None:
    _check_words("task_description", task, MAX_TASK_WORDS)
    return task


def _check_words(what: str, text: str | None, limit: int) -> None:
    if text is None:
        return
    if not isinstance(text, str):
        raise CallError(f"{what} is a str, not {type(text).__name__}: {text!r}")
    check_characters(what, text)
    words = len(text.split())
    if words > limit:
        raise CallError(f"{what} has {words} words, at most {limit} are allowed: shorten {shown(text)}")


def _choice(option: str, value: Choice, valid: Sequence[Choice]) -> Choice:
    if value not in valid:
        raise CallError(f"{option}={value!r} is unknown{nearest(str(value), valid)}")
    return value
