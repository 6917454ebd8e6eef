"""Work formulas count what a mask written out token by token would show."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from quail_frames.cost.work import (
    NOTHING,
    Reach,
    Work,
    asks,
    document_first,
    filter_chain,
    label_scoring,
    pair_join,
    prefill,
    question_first,
)
from quail_frames.plan.label_scoring import decode_program, letter_figures, tree_program
from quail_frames.plan.label_trie import LabelTrie

lengths = st.integers(0, 40)
reaches = st.one_of(st.just(Reach()), st.builds(Reach, st.integers(1, 30), st.sampled_from([0.25, 0.5, 1.0])))
works = st.builds(Work, *[st.floats(0, 1e9)] * 6)
FIELDS = tuple(Work.__dataclass_fields__)


def close(left: Work, right: Work) -> bool:
    return all(getattr(left, name) == pytest.approx(getattr(right, name)) for name in FIELDS)


@given(works, works, works, st.floats(0, 1e3), st.floats(0, 1e3))
def test_work_is_a_vector_space_over_counts(a: Work, b: Work, c: Work, s: float, t: float) -> None:
    assert close(a + b, b + a)
    assert close((a + b) + c, a + (b + c))
    assert a + NOTHING == a
    assert close((a + b) * s, a * s + s * b)
    assert close(a * (s + t), a * s + a * t)


@given(lengths, lengths, reaches)
def test_prefill_counts_the_visible_pairs(tokens: int, context: int, reach: Reach) -> None:
    def seen(window: float) -> float:
        return sum(min(context + i + 1, window) for i in range(tokens))

    expected = (1 - reach.share) * seen(np.inf) + reach.share * seen(reach.window or np.inf)
    assert prefill(tokens, context, reach).attention_pairs == pytest.approx(expected)


@given(lengths, lengths, lengths)
def test_a_document_in_two_pieces_costs_the_same_pairs_and_tokens(context: int, first: int, second: int) -> None:
    whole = prefill(first + second, context)
    pieces = prefill(first, context) + prefill(second, context + first)
    assert whole.attention_pairs == pytest.approx(pieces.attention_pairs)
    assert (whole.new_tokens, whole.kv_written) == (pieces.new_tokens, pieces.kv_written)


@given(st.lists(st.tuples(lengths, lengths, st.integers(1, 9)), min_size=1, max_size=5), reaches)
def test_arrays_sum_what_numbers_give_one_by_one(rows: list[tuple[int, int, int]], reach: Reach) -> None:
    context, suffix, count = np.array(rows, dtype=np.float64).T
    together = asks(context, suffix, count, "tree", 0.5, reach)
    apart = sum((asks(c, s, n, "tree", 0.5, reach) for c, s, n in rows), NOTHING)
    assert close(together, apart)
    assert close(prefill(suffix, context, reach), sum((prefill(s, c, reach) for c, s, _ in rows), NOTHING))


@given(lengths, lengths, st.integers(1, 50))
def test_the_tree_path_reads_a_context_once_for_its_group(context: int, suffix: int, count: int) -> None:
    tree, unified = asks(context, suffix, count, "tree"), asks(context, suffix, count, "unified")
    assert unified.kv_read - tree.kv_read == context * (count - 1)
    assert (tree.merged_tokens, unified.merged_tokens) == (count * suffix, 0)
    assert (tree.new_tokens, tree.attention_pairs) == (unified.new_tokens, unified.attention_pairs)


def test_a_join_computes_its_anchor_once_and_not_at_all_when_resident() -> None:
    cold = pair_join(anchor=1000, partners=60, suffix=12, frame=20)
    warm = pair_join(anchor=1000, partners=60, suffix=12, frame=20, resident=True)
    assert cold.new_tokens == 1000 + 20 + 60 * 12
    assert cold.new_tokens - warm.new_tokens == 1000
    assert close(pair_join(np.full(3, 1000.0), 60, 12, 20), 3 * cold)


def prompt_work(prompts: list[tuple[int, ...]], context: int) -> tuple[int, int]:
    """Tokens and visible pairs of the prefix tree of `prompts` after a context, written out."""
    nodes = {prompt[:i] for prompt in prompts for i in range(1, len(prompt) + 1)}
    return len(nodes), sum(context + len(node) for node in nodes)


labels_list = st.lists(
    st.lists(st.integers(0, 3), min_size=1, max_size=4).map(tuple), min_size=2, max_size=9, unique=True
)


@given(labels_list, lengths, st.integers(1, 20))
def test_trie_tree_costs_the_prefix_tree_of_its_scored_prompts(
    labels: list[tuple[int, ...]], context: int, tail: int
) -> None:
    program = tree_program(LabelTrie.of(labels))
    prefixes: list[tuple[int, ...]] = [()]
    for token, parent in zip(program.tokens.tolist(), program.parents.tolist(), strict=True):
        prefixes.append((*prefixes[parent + 1], token))
    cue = tuple(-1 - i for i in range(tail))
    tokens, pairs = prompt_work([cue + prefix for prefix in prefixes], context)
    work = label_scoring(program.figures, context, tail)
    assert (work.new_tokens, work.attention_pairs) == (tokens, pytest.approx(pairs))
    assert work.head_rows == len(prefixes)


@given(lengths, st.integers(1, 20))
def test_trie_decode_costs_the_mean_over_labels_of_the_walked_prompts(context: int, tail: int) -> None:
    labels = [(1,), (2, 3, 4), (2, 3, 5), (2, 6), (7, 8, 9)]
    walked = [(), (2, 3), (2, 3), (2,), ()]
    cue = tuple(-1 - i for i in range(tail))
    costs = [prompt_work([cue + path], context) for path in walked]
    work = label_scoring(decode_program(LabelTrie.of(labels)).figures, context, tail)
    assert work.new_tokens == pytest.approx(np.mean([tokens for tokens, _ in costs]))
    assert work.attention_pairs == pytest.approx(np.mean([pairs for _, pairs in costs]))
    assert work.head_rows == pytest.approx((1 + 3 + 3 + 2 + 1) / 5)


def test_letters_cost_their_longer_instruction_and_one_row() -> None:
    work = label_scoring(letter_figures(10), context=100, tail=50, letter_tokens=23)
    assert (work.new_tokens, work.head_rows) == (73, 1)


def test_short_texts_with_a_long_label_list_want_the_question_first() -> None:
    messages = np.full(1000, 13.0)
    before = question_first(messages, [430], wrap=12)
    after = document_first(messages, [430 + 4], preamble=4)
    assert before.new_tokens / 1000 == pytest.approx(25, abs=1)
    assert after.new_tokens / 1000 == pytest.approx(447, abs=3)


@given(st.lists(st.floats(0, 1), min_size=1, max_size=5), st.integers(1, 300))
def test_a_chain_costs_no_more_than_asking_everything(selectivities: list[float], document: int) -> None:
    questions = [19.0] * len(selectivities)
    chain = filter_chain(document, questions, selectivities, preamble=2)
    everything = filter_chain(document, questions, [1.0] * len(questions), preamble=2)
    assert all(getattr(chain, name) <= getattr(everything, name) * (1 + 1e-12) for name in FIELDS)
    assert chain.new_tokens >= document + 19
