"""Work: what a plan makes the device do, counted in tokens; independent of the device.

Every formula counts one forward pass of a decoder. Lengths may be numbers or arrays (one entry a row, group or
anchor); the result is the sum. All counts are floats, because plans are priced by expected values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from quail_frames.plan.label_scoring import ScoringFigures

Lengths = float | npt.NDArray[np.number]
AttentionPath = Literal["tree", "unified"]


@dataclass(frozen=True, slots=True)
class Work:
    """What one or many forward passes do.

    >>> prefill(3) + prefill(1, context=3)
    Work(new_tokens=4, attention_pairs=10.0, kv_written=4, kv_read=7, head_rows=0.0, merged_tokens=0.0)
    """

    new_tokens: float = 0.0
    """Tokens that pass through projections and MLP."""
    attention_pairs: float = 0.0
    """(query token, visible token) pairs, mean over the layers."""
    kv_written: float = 0.0
    """Tokens whose keys and values are written."""
    kv_read: float = 0.0
    """Tokens whose keys and values are read from memory, mean over the layers."""
    head_rows: float = 0.0
    """Rows of the output head over the whole vocabulary; a restricted head counts as its share of the vocabulary."""
    merged_tokens: float = 0.0
    """Tokens whose attention is computed in two parts (context, suffix) and joined by log-sum-exp."""

    def __add__(self, other: Work) -> Work:
        return Work(
            self.new_tokens + other.new_tokens,
            self.attention_pairs + other.attention_pairs,
            self.kv_written + other.kv_written,
            self.kv_read + other.kv_read,
            self.head_rows + other.head_rows,
            self.merged_tokens + other.merged_tokens,
        )

    def __mul__(self, times: float) -> Work:
        return Work(
            self.new_tokens * times,
            self.attention_pairs * times,
            self.kv_written * times,
            self.kv_read * times,
            self.head_rows * times,
            self.merged_tokens * times,
        )

    __rmul__ = __mul__


NOTHING = Work()


@dataclass(frozen=True, slots=True)
class Reach:
    """How far back tokens see: in `share` of the layers only the last `window` tokens, themselves included.

    `window` None: every layer sees everything.
    """

    window: int | None = None
    share: float = 0.0

    def pairs(self, tokens: Lengths, context: Lengths) -> Lengths:
        """Visible pairs of `tokens` new tokens after `context` others, mean over the layers.

        Causal: `n * c + n * (n + 1) / 2`. With a window w the first `k = clip(w - c, 0, n)` tokens see all, the
        others w each.
        """
        full = tokens * context + tokens * (tokens + 1) / 2
        if self.window is None:
            return full
        whole = _clip(self.window - context, tokens)
        near = whole * context + whole * (whole + 1) / 2 + (tokens - whole) * self.window
        return (1 - self.share) * full + self.share * near

    def context_read(self, context: Lengths) -> Lengths:
        """Tokens of a context that a following token can see, mean over the layers."""
        if self.window is None:
            return context
        return (1 - self.share) * context + self.share * _clip(self.window - 1, context)


EVERYTHING = Reach()


def prefill(tokens: Lengths, context: Lengths = 0, reach: Reach = EVERYTHING) -> Work:
    """Extend each context by its tokens: a document after its preamble, an instruction after a document.

    Reads the visible context and the new tokens once, writes the new tokens.
    """
    tokens = tokens + 0 * context  # one entry a row, also where only the contexts are many
    return Work(
        new_tokens=_sum(tokens),
        attention_pairs=_sum(reach.pairs(tokens, context)),
        kv_written=_sum(tokens),
        kv_read=_sum(reach.context_read(context) + tokens),
    )


def asks(
    context: Lengths,
    suffix: Lengths,
    count: Lengths = 1,
    path: AttentionPath = "unified",
    head_rows: float = 1.0,
    reach: Reach = EVERYTHING,
) -> Work:
    """Groups of `count` asks, each a suffix of `suffix` tokens on the group's shared context.

    tree: a group reads its context once, and each suffix token's attention is joined from two parts.
    unified: every ask reads the context. Pairs and tokens are the same.

    Parameters
    ----------
    head_rows
        Rows of the whole head that one ask reads.
    """
    count = count + 0 * context + 0 * suffix  # one entry a group, also where all groups have as many
    suffixes = count * suffix
    contexts = reach.context_read(context) * (1 if path == "tree" else count)
    return Work(
        new_tokens=_sum(suffixes),
        attention_pairs=_sum(count * reach.pairs(suffix, context)),
        kv_written=_sum(suffixes),
        kv_read=_sum(contexts + suffixes),
        head_rows=_sum(count * head_rows),
        merged_tokens=_sum(suffixes) if path == "tree" else 0.0,
    )


def pair_join(
    anchor: Lengths,
    partners: Lengths,
    suffix: float,
    frame: float = 0,
    resident: bool = False,
    path: AttentionPath = "tree",
    head_rows: float = 1.0,
    reach: Reach = EVERYTHING,
) -> Work:
    """Anchors of `anchor` tokens, each with `partners` partners asked by suffixes of `suffix` tokens (cue included).

    The frame (the join's instruction, up to the partner) is computed once for each anchor, after it. `resident`: the
    anchors' KV is already there, so they are not computed again.
    """
    before = NOTHING if resident else prefill(anchor, 0, reach)
    framed = prefill(frame + 0 * anchor, anchor, reach) if frame else NOTHING
    return before + framed + asks(anchor + frame, suffix, partners, path, head_rows, reach)


def label_scoring(
    figures: ScoringFigures,
    context: Lengths,
    tail: float,
    letter_tokens: float = 0,
    head_row_share: float = 1.0,
    reach: Reach = EVERYTHING,
) -> Work:
    """One classification of each resident document of `context` tokens.

    Parameters
    ----------
    figures
        From `decode_program`, `tree_program` or `letter_figures` (expected values for each document).
    tail
        Tokens after the document, cue included.
    letter_tokens
        What `letters` adds to the instruction.
    head_row_share
        1 where a row is read over the whole vocabulary (`trie_tree` needs it); a restricted head reads
        `entries / vocabulary` of a row.

    Notes
    -----
    Label tokens see the prompt, their ancestors and themselves. A second request (`trie_decode`) reads the context
    and the tail again.
    """
    instruction = tail + letter_tokens
    fed = figures.positions - 1
    prompt = context + instruction
    first = asks(context, instruction, 1, "unified", 0.0, reach)
    seen = reach.context_read(prompt)
    return first + Work(
        new_tokens=_sum(fed + 0 * context),
        attention_pairs=_sum(fed * seen + figures.tree_pairs),
        kv_written=_sum(fed + 0 * context),
        kv_read=_sum((figures.requests - 1) * seen + fed),
        head_rows=_sum(figures.head_rows * head_row_share + 0 * context),
    )


def document_first(
    documents: Lengths,
    call_tokens: Sequence[float],
    preamble: float = 0,
    head_rows: float = 1.0,
    reach: Reach = EVERYTHING,
    rows: float | None = None,
) -> Work:
    """Documents asked every call: preamble once for all, document once, then each call's tokens (cue included).

    `rows`: how many documents the given lengths stand for; None: just those.
    """
    work = prefill(documents, preamble, reach)
    for tokens in call_tokens:
        work += asks(documents + preamble, tokens, 1, "unified", head_rows, reach)
    return prefill(preamble, 0, reach) + work * _times(documents, rows)


def question_first(
    documents: Lengths,
    call_tokens: Sequence[float],
    wrap: float = 0,
    head_rows: float = 1.0,
    reach: Reach = EVERYTHING,
    rows: float | None = None,
) -> Work:
    """Documents asked every call: each call's tokens once for the column, then the document for each call.

    `wrap` counts the tokens around the document: the marker before and the cue after it. `rows`: how many documents
    the given lengths stand for; None: just those.
    """
    work = NOTHING
    for tokens in call_tokens:
        once = prefill(tokens, 0, reach)
        work += once + asks(tokens, documents + wrap, 1, "unified", head_rows, reach) * _times(documents, rows)
    return work


def filter_chain(
    documents: Lengths,
    questions: Sequence[float],
    selectivities: Sequence[float],
    preamble: float = 0,
    head_rows: float = 1.0,
    reach: Reach = EVERYTHING,
) -> Work:
    """Documents asked one question after the other, as long as they pass.

    Each document is computed once, with the first question; question i is asked of the share
    `selectivities[0] * ... * selectivities[i - 1]`. `questions` are suffix lengths, cue included. The preamble's own
    tokens, computed once for the column, are not counted.
    """
    work, alive = prefill(documents, preamble, reach), 1.0
    for tokens, selectivity in zip(questions, selectivities, strict=True):
        work += asks(documents + preamble, tokens, 1, "unified", head_rows, reach) * alive
        alive *= selectivity
    return work


def _times(sample: Lengths, rows: float | None) -> float:
    """What a sample's work is multiplied by to stand for `rows` rows."""
    return 1.0 if rows is None else rows / np.size(sample)


def _sum(values: Lengths) -> float:
    return values if isinstance(values, int | float) else float(np.sum(values))


def _clip(values: Lengths, upper: Lengths) -> Lengths:
    """Between 0 and `upper`, entry by entry."""
    if isinstance(values, int | float) and isinstance(upper, int | float):
        return max(0, min(values, upper))
    return np.clip(values, 0, upper)
