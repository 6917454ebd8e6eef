"""The quail-frames command: questions about the installation, and SQL over files, answered in the terminal.

It may import every part of the package; each subcommand imports what it needs when it runs, so `--help` stays quick.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Callable, Iterator
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from quail_frames.runtime.options import DEFAULT_MODEL

if TYPE_CHECKING:
    import polars as pl

    from quail_frames.lazy.frame import LazyFrame

app = typer.Typer(no_args_is_help=True, pretty_exceptions_show_locals=False)

LIBRARIES = ("polars", "torch", "numpy", "pyarrow", "tokenizers", "safetensors", "gguf", "sqlglot")
EXTRAS = {
    "gpu": ("triton",),
    "vllm": ("vllm",),
    "openai": ("aiohttp",),
    "ray": ("ray",),
    "notebooks": ("ipykernel", "ipywidgets", "nbclient", "nbformat"),
}


def main() -> None:
    """Entry point of the console script."""
    app()


def print_version(wanted: bool) -> None:
    """Answer `--version` and leave."""
    if wanted:
        typer.echo(f"quail-frames {installed('quail-frames') or 'not installed (run from a source folder)'}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[bool, typer.Option(callback=print_version, is_eager=True, help="Print the version.")] = False,
) -> None:
    """AI operators for Polars data frames."""


def installed(distribution: str) -> str | None:
    """Version of an installed distribution, None where it is missing."""
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return None


@app.command()
def doctor() -> None:
    """Print what quail-frames finds on this machine: versions, processor, devices, model cache, extras."""
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold", no_wrap=True)
    table.add_column(overflow="fold")
    for name, found in findings():
        table.add_row(name, found)
    Console().print(table)


def findings() -> Iterator[tuple[str, str]]:
    """What `doctor` prints: pairs of a name and what was found."""
    yield "quail-frames", installed("quail-frames") or "not installed (run from a source folder)"
    yield "python", f"{platform.python_version()} ({platform.platform()})"
    for library in LIBRARIES:
        yield library, installed(library) or "missing"
    yield from processor()
    yield from devices()
    yield from chosen_kernels()
    yield from model_cache()
    for extra, distributions in EXTRAS.items():
        yield f"extra {extra}", extra_state(distributions)


def processor() -> Iterator[tuple[str, str]]:
    """The processor's vector instructions as torch sees them, and how many threads torch uses."""
    import torch

    yield "processor", f"{platform.machine()}, torch kernels for {torch.backends.cpu.get_cpu_capability()}"
    yield "threads", f"{torch.get_num_threads()} of {os.cpu_count()} cores"
    yield from matrix_products()


def matrix_products() -> Iterator[tuple[str, str]]:
    """GFLOP/s of one core in float32 by each library that can multiply matrices here, and the one that is taken."""
    import torch

    from quail_frames.runtime.lanes import Lanes
    from quail_frames.runtime.models.products import fastest, speeds

    found = Lanes(1).call(lambda: speeds(torch.float32))
    rates = ", ".join(f"{library} {speed:.0f}" for library, speed in found.items())
    yield "matrix products", f"{fastest(found)} (GFLOP/s of a core in float32: {rates})"


def devices() -> Iterator[tuple[str, str]]:
    """Accelerators that torch can use."""
    import torch

    if not torch.cuda.is_available():
        yield "cuda", f"no device (torch built for {torch.version.cuda or 'CPU only'})"
    for index in range(torch.cuda.device_count()):
        device = torch.cuda.get_device_properties(index)
        capability = f"compute capability {device.major}.{device.minor}"
        yield f"cuda:{index}", f"{device.name}, {device.total_memory / 2**30:.0f} GiB, {capability}"


def chosen_kernels() -> Iterator[tuple[str, str]]:
    """What each GPU, and `device="kernels"` on the CPU, runs for every operation, and why others were left."""
    import torch

    from quail_frames.kernels import choices
    from quail_frames.kernels.dispatch import ENVIRONMENT

    yield (
        "kernels",
        f"pinned by {ENVIRONMENT}={os.environ[ENVIRONMENT]}" if os.environ.get(ENVIRONMENT) else "by device",
    )
    cards = [f"cuda:{index}" for index in range(torch.cuda.device_count())] if torch.cuda.is_available() else []
    for device in ("cpu", *cards):
        try:
            found = choices(device)
        except ValueError as error:  # a pin that this device cannot keep
            yield f"kernels on {device}", str(error)
            continue
        names = {choice.name for choice in found}
        whole = f"{names.pop()} for every operation" if len(names) == 1 else "\n".join(map(str, found))
        yield f"kernels on {device}", whole


def model_cache() -> Iterator[tuple[str, str]]:
    """Where fetched models are kept, and how much lies there."""
    from quail_frames.runtime.models.hub import cache_folder

    folder = cache_folder()
    files = [path for path in folder.rglob("*") if path.is_file()] if folder.is_dir() else []
    size = sum(path.stat().st_size for path in files)
    yield "model cache", f"{folder} ({len(files)} files, {size / 1e6:.0f} MB)"


def extra_state(distributions: tuple[str, ...]) -> str:
    """The versions of an extra's distributions, or which of them are missing."""
    found = {name: installed(name) for name in distributions}
    return ", ".join(f"{name} {number or 'missing'}" for name, number in found.items())


@app.command()
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


@app.command()
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
    device: Annotated[str, typer.Option(help="h100-sxm, h200, b200, a100-80, l40s, rtx-4090, m2-max.")] = "local",
    model: Annotated[str, typer.Option(help="A known model, such as qwen3-4b-fp8, or a config.json.")] = "smollm2-135m",
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


def read_tables(entries: list[str]) -> dict[str, pl.LazyFrame]:
    """Frames by name; a name is given once."""
    frames: dict[str, pl.LazyFrame] = {}
    for name, frame in map(read_table, entries):
        if name in frames:
            raise ValueError(f"table {name!r} is given twice: give each file a name of its own")
        frames[name] = frame
    return frames


def read_table(entry: str) -> tuple[str, pl.LazyFrame]:
    """Name and frame of `NAME=FILE`."""
    import polars as pl

    readers: dict[str, Callable[[Path], pl.LazyFrame]] = {
        ".parquet": pl.scan_parquet,
        ".csv": pl.scan_csv,
        ".ndjson": pl.scan_ndjson,
        ".jsonl": pl.scan_ndjson,
        ".ipc": pl.scan_ipc,
        ".arrow": pl.scan_ipc,
    }
    name, given, file = entry.partition("=")
    if not given or not name or not file:
        raise ValueError(f"--table {entry!r} is not NAME=FILE")
    path = Path(file)
    suffix = path.suffix.lower()
    if suffix not in readers:
        raise ValueError(f"table {name!r}: {file} ends in none of {', '.join(readers)}")
    if not path.is_file():
        raise ValueError(f"table {name!r}: there is no file {file}")
    try:
        frame = readers[suffix](path)
        frame.collect_schema()
    except pl.exceptions.PolarsError as error:
        raise ValueError(f"table {name!r}: {file} cannot be read: {error}") from error
    return name, frame


def write(planned: LazyFrame, path: Path) -> None:
    """The rows of a query to a file, as answers come where it is a Parquet file."""
    suffix = path.suffix.lower()
    if not path.parent.is_dir():
        raise ValueError(f"{path} cannot be written: there is no folder {path.parent}")
    if suffix == ".parquet":
        planned.sink_parquet(path)
    elif suffix == ".csv":
        planned.collect().write_csv(path)
    elif suffix in (".ndjson", ".jsonl"):
        planned.collect().write_ndjson(path)
    else:
        raise ValueError(f"{path} ends in none of .parquet, .csv, .ndjson: choose one of them")


def show(frame: pl.DataFrame) -> None:
    """Print a frame with every column, and the first and last of many rows."""
    import polars as pl

    with pl.Config(tbl_cols=-1, tbl_rows=40, fmt_str_lengths=80):
        typer.echo(frame)
