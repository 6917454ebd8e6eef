"""`quail-frames estimate` prices a query over files and asks nothing."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from typer.testing import CliRunner

from quail_frames.cli import app

ON_H100 = ("--device", "h100-sxm", "--model", "qwen3-4b-fp8")


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "reviews.parquet"
    pl.DataFrame({"review": [f"{n} " + "word " * 300 for n in range(2000)]}).write_parquet(path)
    return str(path)


def run(*arguments: str) -> tuple[int, str]:
    result = CliRunner().invoke(app, ["estimate", *arguments])
    return result.exit_code, result.output


def test_a_file_and_prompts_are_priced(file: str) -> None:
    prompts = ("--prompt", "Is {review} good?", "--selectivity", "0.25", "--prompt", "Is {review} long?")
    code, output = run(file, *prompts, *ON_H100, "--price", "2.5")
    assert code == 0
    assert "qwen3-4b-fp8 on h100-sxm: about" in output and "at 2.50 an hour" in output
    assert "2,400 asks" in output and "2,000 -> 100 rows" in output


def test_sql_over_tables_is_priced_as_json(file: str) -> None:
    query = "SELECT COUNT(*) FROM reviews WHERE AI_FILTER(PROMPT('Is {0} good?', review))"
    code, output = run("--sql", query, "--table", f"reviews={file}", *ON_H100, "--json")
    assert code == 0
    found = json.loads(output)
    assert found["asks"] == 2000 and found["dollars"] is None and 2000 * 300 < found["tokens"] < 2000 * 400


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["FILE"], "give a file with --prompt, or --sql"),
        (["FILE", "--prompt", "Is {review} good?", "--device", "h10"], "did you mean"),
        (["FILE", "--prompt", "Is {revew} good?", *ON_H100], "'revew'"),
        (["FILE", "--prompt", "{review}?", "--selectivity", "1", "--selectivity", "1"], "2 --selectivity for 1"),
        (["none.parquet", "--prompt", "Is {review} good?"], "there is no file none.parquet"),
    ],
)
def test_what_cannot_be_priced_says_why(file: str, arguments: list[str], said: str) -> None:
    code, output = run(*[file if argument == "FILE" else argument for argument in arguments])
    assert code == 1 and output.startswith("error: ") and said in output
