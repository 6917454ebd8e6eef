"""Label tries agree with scoring every label by full prompts, one conditional probability at a time."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from quail_frames.errors import CallError
from quail_frames.plan.label_scoring import TreeProgram, decode_program, letter_figures, tree_program
from quail_frames.plan.label_trie import LabelTrie

VOCABULARY = 4

Labels = list[tuple[int, ...]]

WORDS = {"billing": 0, " refund": 1, " request": 2, " status": 3, " shipping": 4, " delay": 5, " damage": 6}
WORDS |= {" address": 7, " change": 8, " product": 9, " defect": 10, " two": 11, "-factor": 12}
WORDS |= {" authentication": 13, " issue": 14, " praise": 15, " other": 16}
SUPPORT = [
    ["billing"],
    [" refund", " request"],
    [" refund", " status"],
    [" shipping", " delay"],
    [" shipping", " damage"],
    [" shipping", " address", " change"],
    [" product", " defect"],
    [" two", "-factor", " authentication", " issue"],
    [" praise"],
    [" other"],
]


def support_trie() -> LabelTrie:
    return LabelTrie.of([[WORDS[word] for word in label] for label in SUPPORT])


def support_word_ends() -> list[list[bool]]:
    return [[i + 1 == len(label) or label[i + 1].startswith(" ") for i in range(len(label))] for label in SUPPORT]


@lru_cache(maxsize=100_000)
def log_probabilities(model: int, prefix: tuple[int, ...]) -> np.ndarray:
    """A language model over four tokens: next-token log-probabilities that depend on the whole prefix."""
    digest = hashlib.blake2b(repr((model, prefix)).encode(), digest_size=8).digest()
    logits = np.random.default_rng(int.from_bytes(digest, "little")).normal(scale=2.0, size=VOCABULARY)
    return logits - np.logaddexp.reduce(logits)


def brute_force(labels: Labels, word_ends: list[list[bool]], model: int) -> np.ndarray:
    """Scores by the definition, from whole prompts: the trie plays no part."""
    scores = []
    for number, label in enumerate(labels):
        others = [other for i, other in enumerate(labels) if i != number]
        length = 1
        while length < len(label) and any(other[:length] == label[:length] for other in others):
            length += 1
        while length < len(label) and not word_ends[number][length - 1]:
            length += 1
        score = np.prod([np.exp(log_probabilities(model, label[:i])[label[i]]) for i in range(length)])
        following = {other[len(label)] for other in others if other[: len(label)] == label}
        scores.append(score * (1 - sum(np.exp(log_probabilities(model, label)[token]) for token in following)))
    return np.array(scores) / np.sum(scores)


def entries_of(program: TreeProgram, model: int) -> np.ndarray:
    """What a tree-masked ask would read: each row sees its ancestors only."""
    prefixes: list[tuple[int, ...]] = [()]
    for token, parent in zip(program.tokens.tolist(), program.parents.tolist(), strict=True):
        prefixes.append((*prefixes[parent + 1], token))
    pairs = zip(program.entry_rows.tolist(), program.entry_tokens.tolist(), strict=True)
    return np.array([log_probabilities(model, prefixes[row])[token] for row, token in pairs])


def is_start(label: tuple[int, ...], labels: Labels) -> bool:
    return any(other != label and other[: len(label)] == label for other in labels)


token_lists = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=5).map(tuple)
label_sets = st.lists(token_lists, min_size=2, max_size=12, unique=True)


@st.composite
def labels_with_words(draw: st.DrawFn) -> tuple[Labels, list[list[bool]]]:
    """Labels and word ends; whether a word ends depends on the label's next token alone, as with real tokens."""
    labels = draw(label_sets)
    starts_word = draw(st.lists(st.booleans(), min_size=VOCABULARY, max_size=VOCABULARY))
    ends = [[i + 1 == len(x) or starts_word[x[i + 1]] for i in range(len(x))] for x in labels]
    return labels, ends


@given(labels_with_words(), st.integers(0, 1000))
def test_tree_scores_equal_brute_force_scoring_by_full_prompts(
    case: tuple[Labels, list[list[bool]]], model: int
) -> None:
    labels, word_ends = case
    program = tree_program(LabelTrie.of(labels), word_ends)
    entries = np.stack([entries_of(program, model + i) for i in range(3)])
    expected = np.stack([brute_force(labels, word_ends, model + i) for i in range(3)])
    probabilities = program.probabilities(entries)
    np.testing.assert_allclose(probabilities, expected, rtol=1e-9, atol=1e-12)
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-12)
    assert program.choose(entries).tolist() == expected.argmax(axis=1).tolist()


@given(label_sets, st.integers(0, 1000))
def test_decode_follows_the_greedy_definition(labels: Labels, model: int) -> None:
    assume(not any(is_start(label, labels) for label in labels))
    program = decode_program(LabelTrie.of(labels))
    left, prefix = list(labels), ()
    while len(left) > 1:
        following = dict.fromkeys(label[len(prefix)] for label in left)
        best = max(following, key=lambda token: log_probabilities(model, prefix)[token])
        prefix = (*prefix, best if len(following) > 1 else next(iter(following)))
        left = [label for label in left if label[: len(prefix)] == prefix]

    step, fed, label = 0, (), -1
    widest = max(len(each.choices) for each in program.steps)
    while label < 0:
        fed += program.steps[step].path
        logits = np.full((1, widest), -np.inf)
        choices = program.steps[step].choices
        logits[0, : len(choices)] = log_probabilities(model, fed)[choices]
        decided, following_steps = program.advance(np.array([step]), logits)
        label, step = int(decided[0]), int(following_steps[0])
    assert labels[label] == left[0]


@given(label_sets)
def test_decode_figures_are_the_mean_over_labels_of_walking_to_each(labels: Labels) -> None:
    assume(not any(is_start(label, labels) for label in labels))
    requests = positions = 0
    for label in labels:
        asked = [
            i
            for i in range(len(label))
            if len({other[i] for other in labels if other[:i] == label[:i] and len(other) > i}) > 1
        ]
        requests += len(asked)
        positions += 1 + asked[-1]
    figures = decode_program(LabelTrie.of(labels)).figures
    assert figures.requests == pytest.approx(requests / len(labels))
    assert figures.positions == pytest.approx(positions / len(labels))


@given(label_sets)
def test_the_tree_holds_the_branching_nodes_and_nothing_below_a_scored_word(labels: Labels) -> None:
    trie = LabelTrie.of(labels)
    program = tree_program(trie)
    assert (program.parents < np.arange(len(program.tokens))).all()
    assert set(program.entry_rows.tolist()) == set(range(program.rows))
    assert program.rows >= len(trie.branching)
    assert set(program.depths.tolist()) <= set(range(1, max(len(label) for label in labels)))


@given(label_sets)
def test_nodes_and_paths_spell_the_labels(labels: Labels) -> None:
    trie = LabelTrie.of(labels)
    assert [tuple(trie.tokens[list(path)].tolist()) for path in trie.paths] == labels
    assert trie.labels_below[0] == len(labels)
    assert list(trie.starts_another) == [is_start(label, labels) for label in labels]
    assert all(trie.parents[node] < node for node in range(1, len(trie.tokens)))
    assert all(not trie.children[leaf] for leaf in trie.leaves)


def test_ties_go_to_the_earlier_label() -> None:
    trie = LabelTrie.of([[5, 1], [3], [5, 2]])
    program = tree_program(trie)
    tied = np.log([[0.1 if token == 3 else 0.5 for token in program.entry_tokens.tolist()]])
    assert program.choose(tied).tolist() == [0]
    labels, steps = decode_program(trie).advance(np.array([0, 1]), np.zeros((2, 2)))
    assert (labels.tolist(), steps.tolist()) == ([-1, 0], [1, -1])


def test_a_label_that_starts_another_is_scored_with_the_probability_of_stopping() -> None:
    program = tree_program(LabelTrie.of([[1], [1, 2]]))
    probabilities = program.probabilities(np.log([[0.5, 0.25]]))
    np.testing.assert_allclose(probabilities, [[0.75, 0.25]])


def test_certain_continuation_still_gives_probabilities_that_sum_to_one() -> None:
    program = tree_program(LabelTrie.of([[1], [1, 2]]))
    probabilities = program.probabilities(np.array([[0.0, 0.0]]))
    np.testing.assert_allclose(probabilities, [[0.0, 1.0]], atol=1e-12)


def test_decode_refuses_a_label_that_starts_another() -> None:
    with pytest.raises(CallError, match="label number 0 is the start of another"):
        decode_program(LabelTrie.of([[1], [1, 2]]))


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([[1]], "2 to 255"),
        ([[i] for i in range(256)], "2 to 255"),
        ([[1], []], "no tokens"),
        ([[1, 2], [3], [1, 2]], "numbers? 0 and 2"),
    ],
)
def test_unusable_labels_are_refused(labels: list[list[int]], message: str) -> None:
    with pytest.raises(CallError, match=message):
        LabelTrie.of(labels)


def test_word_ends_must_match_the_labels() -> None:
    with pytest.raises(CallError, match="one flag for each token"):
        tree_program(LabelTrie.of([[1], [2, 3]]), [[True], [True]])


def test_ten_support_labels_need_the_published_requests_and_answer_positions() -> None:
    trie = support_trie()
    decode = decode_program(trie).figures
    tree = tree_program(trie, support_word_ends())
    assert (decode.requests, decode.positions) == (1.5, 1.5)
    assert tree.figures.positions == 4  # the cue, refund, shipping, two
    assert letter_figures(len(trie)).positions == 1


def test_255_labels_of_many_documents_are_scored_at_once() -> None:
    labels = [[i // 16, 16 + i % 16] for i in range(255)]
    program = tree_program(LabelTrie.of(labels))
    entries = np.log(np.random.default_rng(0).uniform(0.01, 0.9, size=(100, len(program.entry_rows))))
    assert program.probabilities(entries).shape == (100, 255)
