"""The definitions of trie_decode and trie_tree, worked out label by label from whole prompts (DESIGN section 6).

Nothing here knows of tries, trees, steps or contexts: it checks the code that does.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

Label = tuple[int, ...]
Logits = Callable[[Label, Sequence[int]], Sequence[float]]
"""(tokens fed after the prompt, token ids) -> logits of the ids as the next token."""


def decoded_label(labels: Sequence[Label], logits: Logits) -> int:
    """Greedy: the best of the tokens that some label goes on with, until one label is left."""
    left = list(range(len(labels)))
    fed: Label = ()
    while len(left) > 1:
        following = list(dict.fromkeys(labels[number][len(fed)] for number in left))
        best = 0
        if len(following) > 1:
            values = list(logits(fed, following))
            best = values.index(max(values))
        fed = (*fed, following[best])
        left = [number for number in left if labels[number][: len(fed)] == fed]
    return left[0]


def tree_shares(
    labels: Sequence[Label], begins_word: Callable[[int], bool], log_probabilities: Logits
) -> tuple[float, ...]:
    """Each label's probability up to the end of the word where it parts from the others, divided by their sum."""
    scores = [_score(label, labels, begins_word, log_probabilities) for label in labels]
    most = max(scores)
    weights = [math.exp(score - most) for score in scores]
    return tuple(weight / sum(weights) for weight in weights)


def _score(
    label: Label, labels: Sequence[Label], begins_word: Callable[[int], bool], log_probabilities: Logits
) -> float:
    others = [other for other in labels if other != label]
    length = next((n for n in range(1, len(label)) if all(other[:n] != label[:n] for other in others)), len(label))
    while length < len(label) and not begins_word(label[length]):
        length += 1
    score = sum(float(log_probabilities(label[:n], [label[n]])[0]) for n in range(length))
    longer = {other[len(label)] for other in others if other[: len(label)] == label}
    if longer:
        going_on = sum(math.exp(value) for value in log_probabilities(label, sorted(longer)))
        score += math.log(max(1 - going_on, 2.0**-52))
    return score
