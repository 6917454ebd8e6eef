"""The fewest tokens of a set of prompts, against sets of prefixes."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.minimum import minimum_tokens
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.tokens.ragged import Ragged


def by_sets(prompts: list[list[int]], rows: list[int]) -> int:
    """Prefixes of each row that lie in no page that an earlier row has."""
    computed: set[tuple[int, ...]] = set()
    total = 0
    for row in sorted(set(rows)):
        own = [prompt for prompt, asker in zip(prompts, rows, strict=True) if asker == row]
        nodes = {tuple(prompt[:stop]) for prompt in own for stop in range(1, len(prompt) + 1)}
        pages = {tuple(p[:stop]) for p in own for stop in range(PAGE, len(p) + 1, PAGE)}
        free = {page[:stop] for page in pages & computed for stop in range(len(page) - PAGE + 1, len(page) + 1)}
        total += len(nodes - free)
        computed |= pages
    return total


starts = st.sampled_from([[7] * 20, [7] * 15 + [8] * 20, [9] * 40, []])
prompts = st.builds(lambda start, rest: [*start, *rest], starts, st.lists(st.integers(0, 1), min_size=1, max_size=20))


@given(st.lists(st.tuples(prompts, st.integers(0, 3)), min_size=1, max_size=8))
def test_equals_the_count_by_sets_of_prefixes(asks: list[tuple[list[int], int]]) -> None:
    lists, rows = [prompt for prompt, _ in asks], [row for _, row in asks]
    assert minimum_tokens(Ragged.of(lists), np.array(rows)) == by_sets(lists, rows)


def test_one_row_shares_to_the_token_and_two_rows_to_the_page() -> None:
    lists = Ragged.of([[*range(40), 100], [*range(40), 101]])
    assert minimum_tokens(lists, np.array([0, 0])) == 42
    assert minimum_tokens(lists, np.array([0, 1])) == 82 - 2 * PAGE


def test_no_prompts_need_no_tokens() -> None:
    assert minimum_tokens(Ragged.of([]), np.zeros(0, dtype=np.int64)) == 0
