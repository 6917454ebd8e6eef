"""Physical choices priced: label scoring and attention path.

Each function returns every alternative with its price and the chosen one, so that `explain` can print why.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from quail_frames.cost.budgets import Budgets, budgets
from quail_frames.cost.devices import Device
from quail_frames.cost.roofline import Roofline, roofline
from quail_frames.cost.shapes import ModelShape
from quail_frames.cost.work import NOTHING, Lengths, Work, asks, label_scoring, prefill
from quail_frames.plan.label_scoring import ScoringFigures, decode_program, letter_figures, tree_program
from quail_frames.plan.label_trie import LabelTrie

TRUE_FALSE_ENTRIES = 8
"""Head entries of a TRUE/FALSE read-out: four spellings, with and without a leading space."""
TIE = 1e-9
"""Relative difference below which two prices are the same."""

LabelScoring = Literal["letters", "trie_decode", "trie_tree", "decision_choice"]


@dataclass(frozen=True)
class Target:
    """Where plans are priced: a model on a device with its budgets."""

    shape: ModelShape
    device: Device
    budgets: Budgets

    @staticmethod
    def of(shape: ModelShape, device: Device) -> Target:
        """With our own budgets."""
        return Target(shape, device, budgets(shape, device))

    def price(self, work: Work) -> Roofline:
        """Seconds of a whole query: its weights are read once a batch, at least once."""
        return roofline(work, self.shape, self.device, self.budgets.batches(work.new_tokens))

    def marginal(self, work: Work) -> Roofline:
        """Seconds of a small part of a large query: it pays its share of the batches' weights."""
        return roofline(work, self.shape, self.device, work.new_tokens / self.budgets.tokens)

    def head_share(self, entries: float) -> float:
        """A restricted head's row as a share of one over the whole vocabulary."""
        return entries / self.shape.vocabulary


@dataclass(frozen=True)
class Alternative:
    """One way of doing it; `refused` says why it is not possible, then it has no price."""

    name: str
    work: Work | None = None
    price: Roofline | None = None
    refused: str | None = None
    stated: float | None = None
    """Seconds of a plan whose parts were priced one by one, instead of one work's."""

    @property
    def seconds(self) -> float:
        if self.stated is not None:
            return self.stated
        return float("inf") if self.price is None else self.price.seconds


@dataclass(frozen=True)
class Choice:
    """A decision with all its alternatives, the possible ones cheapest first.

    `formula` says in words how the prices come about. `taken` names the alternative that is taken where the price
    alone does not decide, and `because` says why.
    """

    decision: str
    alternatives: tuple[Alternative, ...]
    formula: str = ""
    taken: str | None = None
    because: str = ""

    @property
    def chosen(self) -> str:
        return self.alternatives[0].name if self.taken is None else self.taken

    def __getitem__(self, name: str) -> Alternative:
        return next(alternative for alternative in self.alternatives if alternative.name == name)


def choose(decision: str, alternatives: Sequence[Alternative], formula: str = "") -> Choice:
    """The cheapest first; prices within rounding keep the order given."""
    possible = [each for each in alternatives if each.refused is None]
    least = min(each.seconds for each in possible)
    first = next(each for each in possible if each.seconds <= least * (1 + TIE))
    rest = sorted((each for each in alternatives if each is not first), key=lambda each: each.seconds)
    return Choice(decision, (first, *rest), formula)


def scoring_cost(
    target: Target,
    trie: LabelTrie,
    context: Lengths,
    tail: float,
    rows: float = 1000,
    probabilities: bool = False,
    word_ends: Sequence[Sequence[bool]] | None = None,
    letter_tokens: float | None = None,
    letters: bool = True,
    restricted_head: bool = True,
    resident: bool = True,
    decision: ScoringFigures | None = None,
) -> Choice:
    """The ways of scoring labels of `rows` documents.

    Parameters
    ----------
    context
        Tokens before the call's own: one mean length, or an array that stands for all rows.
    tail
        The call's own tokens after the document, cue included, without what letters add.
    letter_tokens
        What letters add to the instruction; None: two for each label and three for the wording.
    letters
        Whether the vocabulary has enough letters.
    restricted_head
        Whether the engine can read single entries of a head row (`trie_tree` needs whole rows).
    resident
        Whether the context is there already; if not, every alternative also pays for it.
    decision
        From `decision_figures`, where the model has a decision head. Its blocks and cue are the list and the cue of
        the other methods, so they count there instead of in the tail.
    """
    before = NOTHING if resident else prefill(context, 0, target.shape.reach)
    added = letter_tokens_of(len(trie)) if letter_tokens is None else letter_tokens
    scale = rows / np.size(context)
    alternatives = []
    for name, figures, refused in scoring_figures(trie, probabilities, word_ends, letters):
        if figures is None:
            alternatives.append(Alternative(name, refused=refused))
            continue
        share = _head_share(target.shape, name, figures, restricted_head)
        extra = added if name == "letters" else 0
        work = (before + label_scoring(figures, context, tail, extra, share, target.shape.reach)) * scale
        alternatives.append(Alternative(name, work, target.price(work)))
    if decision is not None:
        share = _head_share(target.shape, "decision_choice", decision, True)
        own = max(tail - (decision.positions - 1), 0)
        work = (before + label_scoring(decision, context, own, 0, share, target.shape.reach)) * scale
        alternatives.append(Alternative("decision_choice", work, target.price(work)))
    formula = (
        "the call's own tokens after the document, what the method adds (letters: a letter for each label; tries: the "
        "label tokens it feeds), and the head rows it reads"
    )
    return choose("label scoring", alternatives, formula)


def auto_scoring(
    shape: ModelShape,
    trie: LabelTrie,
    probabilities: bool = False,
    word_ends: Sequence[Sequence[bool]] | None = None,
    letter_tokens: float | None = None,
    letters: bool = True,
    restricted_head: bool = True,
) -> LabelScoring:
    """What `scoring="auto"` means: the method that adds the fewest FLOPs to a document's prompt.

    It depends on the labels and the model alone, never on rows or the device, so answers do not either.
    """
    added = letter_tokens_of(len(trie)) if letter_tokens is None else letter_tokens
    best: tuple[float, LabelScoring] | None = None
    for name, figures, _ in scoring_figures(trie, probabilities, word_ends, letters):
        if figures is None:
            continue
        tokens = figures.positions - 1 + (added if name == "letters" else 0)
        heads = figures.head_rows * _head_share(shape, name, figures, restricted_head)
        flops = tokens * shape.flops_per_token + heads * shape.flops_per_head_row
        if best is None or flops < best[0] * (1 - TIE):
            best = (flops, name)
    assert best is not None  # trie_tree is always possible
    return best[1]


def letter_tokens_of(labels: int) -> int:
    """Tokens that letters add to a classification's instruction: ` A` and `:` for each label, and the wording."""
    return 2 * labels + 3


def scoring_figures(
    trie: LabelTrie,
    probabilities: bool = False,
    word_ends: Sequence[Sequence[bool]] | None = None,
    letters: bool = True,
) -> tuple[tuple[LabelScoring, ScoringFigures | None, str | None], ...]:
    """(method, figures or None, why it is refused); where prices tie, the earlier method is taken.

    Letters come first because they need one row and no trie state; they tie with `trie_decode` where two labels share
    a start as long as what letters add.
    """
    refused = None
    if probabilities:
        refused = "gives no probabilities"
    elif any(trie.starts_another):
        refused = "a label is the start of another"
    return (
        ("letters", letter_figures(len(trie)) if letters else None, None if letters else "not enough letters"),
        ("trie_decode", decode_program(trie).figures if refused is None else None, refused),
        ("trie_tree", tree_program(trie, word_ends).figures, None),
    )


def attention_path_cost(
    target: Target,
    context: Lengths,
    suffix: Lengths,
    count: Lengths,
    groups: float = 1,
    head_entries: float = TRUE_FALSE_ENTRIES,
) -> Choice:
    """One call of attention for each ask (unified), or one read of the context for its whole group (tree).

    The tree saves reads of the context and pays for joining two partial outputs; equal prices give unified, which
    launches less.
    """
    share, reach = target.head_share(head_entries), target.shape.reach
    paths: tuple[Literal["unified", "tree"], ...] = ("unified", "tree")
    works = {path: asks(context, suffix, count, path, share, reach) * groups for path in paths}
    priced = [Alternative(path, work, target.price(work)) for path, work in works.items()]
    formula = "tree reads a context once for all its asks and joins two partial outputs; unified reads it for every ask"
    return choose("attention path", priced, formula)


def _head_share(shape: ModelShape, method: LabelScoring, figures: ScoringFigures, restricted: bool) -> float:
    if not restricted or method == "trie_tree":
        return 1.0
    return figures.head_entries / (figures.head_rows * shape.vocabulary)
