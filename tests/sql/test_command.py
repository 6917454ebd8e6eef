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
        ([QUERY, "--table", f"notes={__file__}"], "ends in none of .parquet"),
        ([QUERY, "--table", "notes=none.parquet"], "error: table 'notes': there is no file none.parquet"),
        ([QUERY, "--table", "notes=notes.xlsx"], "ends in none of .parquet"),
        ([QUERY, "-o", "out.xlsx"], "error: out.xlsx ends in none of"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_1(table: str, arguments: list[str], said: str) -> None:
    code, output = run(*arguments, "--table", table)
    assert code == 1
    assert said in output and output.count("\n") == 1


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("a.parquet", b""),
        ("a.parquet", b"garbage"),
        ("a.csv", b""),
        ("a.csv", b'id,text\n1,"open\n'),
        ("a.ndjson", b"no\n"),
    ],
)
def test_a_file_that_cannot_be_read_is_named(tmp_path: Path, name: str, content: bytes) -> None:
    (tmp_path / name).write_bytes(content)
    code, output = run("SELECT id FROM a", "--table", f"a={tmp_path / name}")
    assert code == 1
    assert output.startswith("error: ") and "Traceback" not in output


def test_a_table_is_named_once_and_its_file_in_any_case(table: str, tmp_path: Path) -> None:
    assert "is given twice" in run(QUERY, "--table", table, "--table", table)[1]
    (tmp_path / "reviews.parquet").rename(tmp_path / "REVIEWS.PARQUET")
    assert run(QUERY, "--table", f"reviews={tmp_path / 'REVIEWS.PARQUET'}")[0] == 0


def test_a_place_that_cannot_be_written_is_refused_before_anything_is_asked(table: str, tmp_path: Path) -> None:
    for place in (tmp_path / "missing" / "out.csv", tmp_path / "missing" / "out.parquet"):
        assert "there is no folder" in run(QUERY, "--table", table, "-o", str(place))[1]
