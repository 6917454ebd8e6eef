"""`quail-frames sql` runs a query over files."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from quail_frames.cli import app

QUERY = "SELECT id, AI_FILTER(PROMPT('Is {0} good?', review)) AS good FROM reviews WHERE stars > 1 ORDER BY id"


@pytest.fixture
def table(tmp_path: Path) -> str:
    """A table as the command takes it."""
    path = tmp_path / "reviews.parquet"
    pl.DataFrame({"id": [1, 2, 3], "review": ["good", "bad", None], "stars": [5, 1, 3]}).write_parquet(path)
    return f"reviews={path}"


def run(*arguments: str, input: str | None = None) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["sql", *arguments, "--model", "oracle"], input=input)
    return result.exit_code, result.output


def test_rows_are_printed(table: str) -> None:
    code, output = run(QUERY, "--table", table)
    assert code == 0
    assert "shape: (2, 2)" in output and "good" in output


def test_the_query_may_come_from_standard_input(table: str) -> None:
    assert run("-", "--table", table, input=QUERY) == run(QUERY, "--table", table)


@pytest.mark.parametrize(
    ("suffix", "read"), [("parquet", pl.read_parquet), ("csv", pl.read_csv), ("ndjson", pl.read_ndjson)]
)
def test_rows_are_written(table: str, tmp_path: Path, suffix: str, read: object) -> None:
    out = tmp_path / f"out.{suffix}"
    assert run(QUERY, "--table", table, "-o", str(out)) == (0, "")
    assert read(out)["id"].to_list() == [1, 3]  # type: ignore[operator]


def test_explain_prints_the_plan_and_asks_nothing(table: str) -> None:
    code, output = run(QUERY, "--table", table, "--explain")
    assert code == 0
    assert "As planned" in output and 'ai_if("Is {review} good?")' in output


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["SELECT revew FROM reviews"], "error: line 1, column 8: column 'revew' is unknown; did you mean 'review'?"),
        ([QUERY, "--dialect", "postgres"], "error: dialect 'postgres' is unknown"),
        ([QUERY, "--table", "notes"], "error: --table 'notes' is not NAME=FILE"),
        ([QUERY, "--table", "notes=none.parquet"], "error: table 'notes': there is no file none.parquet"),
        ([QUERY, "--table", "notes=notes.xlsx"], "ends in none of .parquet"),
        ([QUERY, "-o", "out.xlsx"], "error: out.xlsx ends in none of"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(table: str, arguments: list[str], said: str) -> None:
    code, output = run(*arguments, "--table", table)
    assert code == 1
    assert said in output and output.count("\n") == 1
