"""Whatever the text, the answer is a frame or one `SqlError`: never an error from inside, never a partial run."""

from __future__ import annotations

import random
import re

import pytest

import quail_frames as qf
from tests.sql.grammar import TABLES, Generator
from tests.sql.test_plans import ASPECTS, QUERIES, REVIEWS

WORD = re.compile(r"'(?:[^']|'')*'|\w+|\s+|.")
FRAMES = {**TABLES, "reviews": REVIEWS, "aspects": ASPECTS}
STATEMENTS = [
    *((dialect, text) for dialect, text, _ in QUERIES.values()),
    *((dialect, Generator(dialect, seed).query()[0]) for dialect in ("snowflake", "bigquery") for seed in range(20)),
]
WORDS = sorted({word for _, text in STATEMENTS for word in WORD.findall(text) if word.strip()})


def changed(text: str, chance: random.Random) -> str:
    """The text with a word or two left out, put in, doubled or replaced by a word of the same kind."""
    words = WORD.findall(text)
    for _ in range(chance.randint(1, 2)):
        position = chance.randrange(len(words))
        same = [word for word in WORDS if word[0].isalpha() == words[position][0].isalpha()]
        new = chance.choice([[], [chance.choice(WORDS)], [words[position]] * 2, *[[chance.choice(same)]] * 5])
        words[position : position + 1] = new
    return "".join(words)


@pytest.mark.parametrize("seed", range(4))
def test_a_changed_statement_is_a_frame_or_one_error(seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(40):
        dialect, text = chance.choice(STATEMENTS)
        statement = changed(text, chance)
        try:
            found = qf.sql(statement, dialect=dialect, **FRAMES)  # type: ignore[arg-type]
        except qf.SqlError as error:
            assert all(line >= 1 and column >= 1 and message for line, column, message in error.problems)
        else:
            assert isinstance(found, qf.LazyFrame), statement
