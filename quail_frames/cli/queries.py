"""`quail-frames sql` and `quail-frames estimate`: queries over files, run or priced."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from quail_frames.cli.files import read_table, read_tables, show, write
from quail_frames.cost.devices import DEVICES
from quail_frames.runtime.options import DEFAULT_MODEL

if TYPE_CHECKING:
    from quail_frames.lazy.frame import LazyFrame


def sql(
    query: Annotated[str, typer.Argument(help="One SELECT statement, or - to read it from standard input.")],
    table: Annotated[
        list[str] | None, typer.Option(help="NAME=FILE (.parquet, .csv, .ndjson, .ipc); once for each table.")
    ] = None,
    dialect: Annotated[str, typer.Option(help="snowflake or bigquery.")] = "snowflake",
    model: Annotated[str, typer.Option(help="A model as in quail_frames.configure.")] = DEFAULT_MODEL,
    explain: Annotated[bool, typer.Option("--explain", help="Print the plan; ask nothing.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="Write the rows here (.parquet, .csv, .ndjson).")
    ] = None,
) -> None:
    """Run an AI-SQL query over files."""
    import polars as pl

    import quail_frames as qf

    text = typer.get_text_stream("stdin").read() if query == "-" else query
    try:
        qf.configure(model=model)
        planned = sql_query(text, table or [], dialect)
        if explain:
            typer.echo(planned.explain())
        elif output is not None:
            write(planned, output)
        else:
            show(planned.collect())
    except (qf.QuailFramesError, pl.exceptions.PolarsError, ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error


def estimate(
    file: Annotated[Path | None, typer.Argument(help="A file of rows (.parquet, .csv, .ndjson, .ipc).")] = None,
    prompt: Annotated[
        list[str] | None,
        typer.Option(help="A filter's question about the file's columns, as {column}; may be repeated."),
    ] = None,
    selectivity: Annotated[
        list[float] | None, typer.Option(help="Share of rows that a prompt's question keeps, in the prompts' order.")
    ] = None,
    sql: Annotated[str | None, typer.Option(help="A query instead of a file and prompts.")] = None,
    table: Annotated[list[str] | None, typer.Option(help="NAME=FILE of a table in the query; once for each.")] = None,
    dialect: Annotated[str, typer.Option(help="snowflake or bigquery.")] = "snowflake",
    device: Annotated[str, typer.Option(help=", ".join(["local", *DEVICES]) + ".")] = "local",
    model: Annotated[str, typer.Option(help="A known model, such as qwen3-4b-fp8, or a config.json.")] = DEFAULT_MODEL,
    price: Annotated[float | None, typer.Option(help="What the device costs an hour.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the numbers as JSON.")] = False,
) -> None:
    """Say what a query would cost with a model on a device: seconds, tokens, questions. Loads and asks nothing."""
    import polars as pl

    import quail_frames as qf

    try:
        if (sql is None) == (file is None or not prompt):
            raise ValueError("give a file with --prompt, or --sql with --table NAME=FILE")
        planned = sql_query(sql, table or [], dialect) if sql is not None else filters(file, prompt, selectivity)
        found = planned.estimate(device=device, model=model, price_per_hour=price)
    except (qf.QuailFramesError, pl.exceptions.PolarsError, ValueError, OSError) as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(1) from error
    typer.echo(json.dumps(found.to_dict(), indent=2) if as_json else found)


def sql_query(text: str, tables: list[str], dialect: str) -> LazyFrame:
    """A query over files."""
    import quail_frames as qf

    return qf.SQLContext(read_tables(tables), dialect=dialect).execute(text)  # type: ignore[arg-type]


def filters(file: Path | None, prompts: list[str] | None, selectivities: list[float] | None) -> LazyFrame:
    """A file's rows behind one filter for each prompt."""
    import quail_frames as qf
    from quail_frames.lazy.frame import lazy

    shares = selectivities or []
    if len(shares) > len(prompts or []):
        raise ValueError(f"{len(shares)} --selectivity for {len(prompts or [])} --prompt: give one for each, in order")
    planned = lazy(read_table(f"rows={file}")[1])
    for number, text in enumerate(prompts or []):
        share = shares[number] if number < len(shares) else None
        planned = planned.filter(qf.ai_if(text, selectivity=share))
    return planned
