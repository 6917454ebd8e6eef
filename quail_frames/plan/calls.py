"""AI calls: immutable specs of what is asked of each row.

A call's *identity* is a stable hash of everything that can change an answer given the
model; selectivity is an estimate and takes no part in it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Literal

from quail_frames.plan.template import Template

Layout = Literal["auto", "document_first", "question_first", "by_cost"]
Scoring = Literal["auto", "letters", "trie_decode", "trie_tree", "decision_choice", "by_cost"]
Overflow = Literal["error", "null", "truncate"]

LAYOUTS: tuple[Layout, ...] = ("auto", "document_first", "question_first", "by_cost")
SCORINGS: tuple[Scoring, ...] = ("auto", "letters", "trie_decode", "trie_tree", "decision_choice", "by_cost")
OVERFLOWS: tuple[Overflow, ...] = ("error", "null", "truncate")


@dataclass(frozen=True)
class AiCall:
    """One question asked of every row.

    Parameters
    ----------
    template
        What is asked; its slots refer to `columns` by position.
    columns
        Names of the input columns, in slot order.
    selectivity
        The user's estimate of the share of rows answered TRUE (or of the labels kept), 0..1.
    layout
        Where the document stands in the prompt; see `quail_frames.runtime.tokens.layouts`.
    overflow
        What happens to a row whose prompt is longer than the model's context.
    """

    template: Template
    columns: tuple[str, ...]
    selectivity: float | None = None
    layout: Layout = "auto"
    overflow: Overflow = "error"

    # Traits that the optimizer's rules ask for (a rule leaves alone what it cannot read).
    row_local = True
    pure = True

    @property
    def kind(self) -> str:
        """Name of the call's kind: `AiIf`, `AiScore` or `AiClassify`."""
        return type(self).__name__

    def spec(self) -> dict[str, object]:
        """Everything that can change an answer, as JSON-ready data."""
        fields = {name: value for name, value in asdict(self).items() if name != "selectivity"}
        fields["template"] = [piece if isinstance(piece, str) else piece.input for piece in self.template.pieces]
        return {"kind": self.kind, **fields}

    @cached_property
    def identity(self) -> str:
        """Stable across processes: 32 hexadecimal digits of BLAKE2b over the canonical JSON of `spec()`."""
        text = json.dumps(self.spec(), sort_keys=True, ensure_ascii=True)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    @cached_property
    def wording(self) -> str:
        """The identity without the columns' names: calls of one wording ask the same of the same texts."""
        return replace(self, columns=("",) * len(self.columns)).identity

    def output_name(self) -> str:
        """Name of the answer column unless aliased."""
        return f"{self.columns[0]}_{self.suffix}"

    @property
    def suffix(self) -> str:
        """What `output_name` adds to the first column's name."""
        raise NotImplementedError(f"{self.kind} names no output")


@dataclass(frozen=True)
class AiIf(AiCall):
    """TRUE or FALSE. Answer: Boolean."""

    @property
    def suffix(self) -> str:
        return "if"


@dataclass(frozen=True)
class AiScore(AiCall):
    """The probability of TRUE. Answer: Float64 in 0..1."""

    @property
    def suffix(self) -> str:
        return "score"


@dataclass(frozen=True)
class AiClassify(AiCall):
    """One of `labels`. Answer: String, or with `probabilities` a struct {label, probabilities}.

    The template of a classification holds what is classified (one slot a column, or a
    question around them); the labels follow in the prompt.
    """

    labels: tuple[str, ...] = ()
    descriptions: tuple[str | None, ...] | None = None
    task_description: str | None = None
    scoring: Scoring = "auto"
    probabilities: bool = False

    @property
    def suffix(self) -> str:
        return "label"


CALL_KINDS: dict[str, type[AiCall]] = {kind.__name__: kind for kind in (AiIf, AiScore, AiClassify)}


_NAMES = {"AiIf": "ai_if", "AiScore": "ai_score", "AiClassify": "ai_classify"}
_LONGEST = 70


def describe_call(call: AiCall) -> str:
    """A call in short: `ai_if("Is {review} positive?")`."""
    names = tuple(f"{{{name}}}" for name in call.columns)
    asked = call.template.render(names) if call.template.inputs else f"{names[0]}: {call.template.render(())}"
    asked = " ".join(asked.split())
    labels = call.labels if isinstance(call, AiClassify) else ()
    shown = f", {list(labels[:4])}{'…' if len(labels) > 4 else ''}" if labels else ""
    if isinstance(call, AiClassify) and call.scoring != "auto":
        shown += f", scoring={call.scoring}"
    return f'{_NAMES[call.kind]}("{asked if len(asked) <= _LONGEST else asked[: _LONGEST - 1] + "…"}"{shown})'
