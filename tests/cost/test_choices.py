"""Physical choices take the cheapest possible alternative and show all of them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quail_frames.cost.budgets import budgets, published_conventions
from quail_frames.cost.choices import (
    Alternative,
    Target,
    attention_path_cost,
    auto_scoring,
    choose,
    letter_tokens_of,
    scoring_cost,
)
from quail_frames.cost.devices import Device, device
from quail_frames.cost.shapes import shape
from quail_frames.cost.work import prefill
from quail_frames.plan.label_scoring import decision_figures, decode_program, letter_figures, tree_program
from quail_frames.plan.label_trie import LabelTrie

QWEN = shape("qwen3-4b-fp8")
H100 = device("h100-sxm")
PUBLISHED = Target(QWEN, H100, budgets(QWEN, H100, published_conventions(QWEN, 4.5e9)))
CPU = Target.of(shape("smollm2-135m-fp32"), Device("local", 24e9, 12e9, {"fp32": 90e9}, shared_memory=True))

# billing; refund request; refund status; shipping delay; shipping damage; shipping address change; product defect;
# two-factor authentication issue (`two`, `-factor`, ...); praise; other
SUPPORT = LabelTrie.of([[1], [2, 3], [2, 4], [5, 6], [5, 7], [5, 8, 9], [10, 11], [12, 13, 14, 15], [16], [17]])
WORD_ENDS = [[True] * len(label) if label[0] != 12 else [False, True, True, True] for label in SUPPORT.labels]


def long_start(tokens: int) -> LabelTrie:
    """Two labels that part after so many shared tokens."""
    start = list(range(100, 100 + tokens))
    return LabelTrie.of([[*start, 1], [*start, 2]])


def test_ten_support_labels_cost_the_published_extra_flops() -> None:
    # An answer position is a row of the model and a full head row; letters are counted by their longer instruction.
    position = QWEN.flops_per_token + QWEN.flops_per_head_row
    decode, tree = decode_program(SUPPORT).figures, tree_program(SUPPORT, WORD_ENDS).figures
    assert decode.positions * position == pytest.approx(12e9, rel=0.02)
    assert tree.positions * position == pytest.approx(32e9, rel=0.02)
    assert letter_figures(10).positions == 1
    assert letter_tokens_of(10) == 23
    assert letter_tokens_of(10) * QWEN.flops_per_token == pytest.approx(167e9, rel=0.01)


def test_label_scoring_adds_two_to_eleven_percent_to_short_documents() -> None:
    # 100 tokens of document and 110 of instruction; the additions are those of the test above.
    prompt = 210 * QWEN.flops_per_token
    position = QWEN.flops_per_token + QWEN.flops_per_head_row
    assert 4 * position / prompt == pytest.approx(0.02, abs=0.002)
    assert 23 * QWEN.flops_per_token / prompt == pytest.approx(0.11, abs=0.002)


@pytest.mark.parametrize("restricted", [True, False])
def test_decoding_wins_over_the_tree_and_the_tree_over_letters(restricted: bool) -> None:
    choice = scoring_cost(
        PUBLISHED, SUPPORT, 100, 110, 1000, word_ends=WORD_ENDS, restricted_head=restricted, resident=False
    )
    assert [each.name for each in choice.alternatives] == ["trie_decode", "trie_tree", "letters"]
    least = choice["trie_decode"].seconds
    assert choice["trie_tree"].seconds / least == pytest.approx(1.01, abs=0.003)
    assert choice["letters"].seconds / least == pytest.approx(1.10, abs=0.005)


@pytest.mark.parametrize("restricted", [True, False])
@pytest.mark.parametrize("start", range(1, 12))
def test_letters_win_for_two_labels_that_share_seven_tokens_or_more(start: int, restricted: bool) -> None:
    expected = "letters" if start >= 7 else "trie_decode"
    assert scoring_cost(PUBLISHED, long_start(start), 100, 110, restricted_head=restricted).chosen == expected
    assert auto_scoring(QWEN, long_start(start), restricted_head=restricted) == expected
    assert auto_scoring(CPU.shape, long_start(start), restricted_head=restricted) == expected


def test_the_tree_wins_with_probabilities_and_decoding_says_why_it_cannot() -> None:
    choice = scoring_cost(PUBLISHED, SUPPORT, 100, 110, probabilities=True, word_ends=WORD_ENDS)
    assert choice.chosen == "trie_tree" == auto_scoring(QWEN, SUPPORT, probabilities=True, word_ends=WORD_ENDS)
    assert choice["trie_decode"].refused == "gives no probabilities"


def test_a_decision_costs_what_the_label_list_costs_and_is_priced_only_with_a_head() -> None:
    decision = decision_figures([5] * 10, cue=3, width=128)
    choice = scoring_cost(PUBLISHED, SUPPORT, 100, 110, word_ends=WORD_ENDS, resident=False, decision=decision)
    assert choice["decision_choice"].work is not None and choice["trie_decode"].work is not None
    assert choice["decision_choice"].work.new_tokens == 210 * 1000
    assert choice["decision_choice"].seconds / choice["trie_decode"].seconds == pytest.approx(1, abs=0.02)
    assert all(each.name != "decision_choice" for each in scoring_cost(PUBLISHED, SUPPORT, 100, 110).alternatives)


def test_a_label_that_starts_another_leaves_tree_and_letters() -> None:
    trie = LabelTrie.of([[1], [1, 2], [3]])
    assert scoring_cost(CPU, trie, 100, 40).chosen == "trie_tree"
    assert scoring_cost(CPU, trie, 100, 40, letters=False)["letters"].refused == "not enough letters"


def test_one_ask_takes_the_unified_path_and_many_share_their_context() -> None:
    assert attention_path_cost(PUBLISHED, context=300, suffix=19, count=1, groups=1000).chosen == "unified"
    assert attention_path_cost(PUBLISHED, context=2000, suffix=8, count=100, groups=20).chosen == "tree"


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=6))
def test_a_choice_is_the_cheapest_and_ties_keep_the_order(stated: list[float]) -> None:
    price = PUBLISHED.price(PUBLISHED_WORK)
    choice = choose("x", [Alternative(str(i), stated=seconds) for i, seconds in enumerate(stated)])
    assert choice.alternatives[0].seconds <= min(each.seconds for each in choice.alternatives) * (1 + 1e-9)
    assert {each.name for each in choice.alternatives} == {str(i) for i in range(len(stated))}
    assert choose("x", [Alternative(str(i), PUBLISHED_WORK, price) for i in range(3)]).chosen == "0"


PUBLISHED_WORK = scoring_cost(PUBLISHED, SUPPORT, 100, 110)["letters"].work


@given(st.integers(1, 100_000), st.integers(1, 100_000))
def test_marginal_prices_add_up_and_whole_queries_read_the_weights_once(a: int, b: int) -> None:
    parts = CPU.marginal(prefill(a)).seconds + CPU.marginal(prefill(b)).seconds
    assert CPU.marginal(prefill(a) + prefill(b)).seconds <= parts * (1 + 1e-9)
    assert CPU.price(prefill(a)).seconds >= CPU.marginal(prefill(a)).seconds * (1 - 1e-9)
