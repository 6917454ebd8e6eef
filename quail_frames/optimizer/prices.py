"""What plans are priced by: a model on a device, what is known about the rows, and how a model's prompts are laid out.

The optimizer may not import the runtime, so the front end hands in how a call is laid out (`lay_out`); without it a
call's tokens are guessed from its words.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache

from quail_frames.cost.choices import TRUE_FALSE_ENTRIES, Target
from quail_frames.cost.devices import ORDINARY_CPU
from quail_frames.cost.shapes import shape
from quail_frames.optimizer.statistics import Statistics
from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.label_scoring import ScoringFigures, letter_figures
from quail_frames.plan.label_trie import LabelTrie
from quail_frames.plan.selectivity import SEEN, Memory

INSTRUCTION_TOKENS = 12.0
"""Guess: the words before a question, such as `Evaluate TRUE or FALSE for the following question: `."""
CUE_TOKENS = 4.0
HEADING_TOKENS = 4.0
CHARACTERS_PER_TOKEN = 4.0
PRICED_AS = "smollm2-135m"
"""Whose sizes stand in where a model's own are not known yet."""


@dataclass(frozen=True)
class LabelFigures:
    """A classification's labels as tokens: what the price of its label scoring depends on."""

    trie: LabelTrie
    word_ends: tuple[tuple[bool, ...], ...] | None = None
    letter_tokens: float | None = None
    letters: bool = True


@dataclass(frozen=True)
class CallFigures:
    """A call laid out for a model: its own tokens, piece by piece, and what is read for an answer.

    Parameters
    ----------
    document, instruction, question
        Tokens of the prompt's three pieces that are the same for every row.
    document_slots, question_slots
        Slots whose texts stand in the document and in the question.
    answer
        Rows and tokens of the read-out.
    instruction_key
        Equal for calls that share the context behind the instruction of one document.
    """

    layout: str
    scoring: str
    document: float
    instruction: float
    question: float
    document_slots: tuple[int, ...]
    question_slots: tuple[int, ...] = ()
    answer: ScoringFigures = field(default_factory=lambda: letter_figures(TRUE_FALSE_ENTRIES))
    instruction_key: str = ""
    labels: LabelFigures | None = None

    @property
    def question_first(self) -> bool:
        """The call's own words are one context for all rows."""
        return self.layout == "question_first"

    @property
    def own_tokens(self) -> float:
        """Tokens of the prompt without the row's texts."""
        return self.document + self.instruction + self.question

    def head_share(self, vocabulary: int) -> float:
        """One head row that it reads as a share of a whole one."""
        return 1.0 if self.scoring == "trie_tree" else self.answer.head_entries / (self.answer.head_rows * vocabulary)


LayOut = Callable[[AiCall, tuple[int, ...]], CallFigures]
"""A call, and its slots of the anchor side where it is asked of pairs -> its figures."""


def call_tokens(call: AiCall) -> float:
    """Guessed tokens of a question without its document, instruction and cue included."""
    text = call.template.render(("",) * len(call.columns))
    if isinstance(call, AiClassify):
        text += " ".join([*call.labels, *filter(None, call.descriptions or ()), call.task_description or ""])
    return INSTRUCTION_TOKENS + CUE_TOKENS + len(text) / CHARACTERS_PER_TOKEN


@lru_cache(maxsize=1024)
def assumed_figures(call: AiCall, anchors: tuple[int, ...] = ()) -> CallFigures:
    """A call's figures guessed from its words, document first unless the call says otherwise."""
    slots = call.template.inputs or (0,)
    partners = tuple(slot for slot in slots if slot not in anchors) if anchors else ()
    own = call_tokens(call) - INSTRUCTION_TOKENS
    scoring, answer = "true_false", letter_figures(TRUE_FALSE_ENTRIES)
    if isinstance(call, AiClassify):
        named = call.scoring if call.scoring not in ("auto", "by_cost") else "letters"
        scoring, answer = named, letter_figures(max(len(call.labels), 1))
    if call.layout == "question_first":
        words = INSTRUCTION_TOKENS + own - CUE_TOKENS
        around = HEADING_TOKENS * len(slots) + CUE_TOKENS
        return CallFigures("question_first", scoring, 0.0, words, around, (), slots, answer, call.identity)
    return CallFigures(
        layout="document_first",
        scoring=scoring,
        document=HEADING_TOKENS * len(anchors or slots),
        instruction=INSTRUCTION_TOKENS if not anchors else INSTRUCTION_TOKENS + own - CUE_TOKENS + HEADING_TOKENS,
        question=own if not anchors else CUE_TOKENS,
        document_slots=anchors or slots,
        question_slots=partners,
        answer=answer,
        instruction_key=call.kind if not anchors else call.identity,
    )


@dataclass(frozen=True)
class Prices:
    """A model on a device, the rows as far as they are known, and how calls are laid out for the model.

    `notes` say in words what the prices rest on.
    """

    target: Target
    statistics: Statistics = field(default_factory=Statistics)
    lay_out: LayOut = assumed_figures
    notes: tuple[str, ...] = ()
    attention: str = "tree"
    """The engine's attention path."""
    share_from: int = 1
    """Leading pages from which the engine lets rows share their KV."""
    seen: Memory | None = None
    """What earlier runs saw of calls, for decisions that change no answer."""

    def remembering(self) -> Prices:
        """The same prices with what earlier runs of this process saw."""
        return replace(self, seen=SEEN)

    @staticmethod
    def assumed() -> Prices:
        """The default model on a CPU that nobody has measured, over rows that nobody has seen."""
        return Prices(assumed_target())

    @cached_property
    def vocabulary(self) -> int:
        """Entries of a whole head row."""
        return self.target.shape.vocabulary

    def about(self, statistics: Statistics) -> Prices:
        """The same prices over other rows."""
        return replace(self, statistics=statistics)


@lru_cache(maxsize=1)
def assumed_target() -> Target:
    """The default model on a CPU that nobody has measured."""
    return Target.of(shape(PRICED_AS), ORDINARY_CPU)
