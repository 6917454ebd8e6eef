"""Tables of a query from files, and its rows into a file or onto the terminal."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import typer

if TYPE_CHECKING:
    import polars as pl

    from quail_frames.lazy.frame import LazyFrame


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
