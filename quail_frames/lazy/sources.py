"""A planned frame as a source of Polars' own queries: `to_polars` and the Parquet sink."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import polars as pl
from polars.exceptions import ComputeError
from polars.io.plugins import register_io_source

from quail_frames.errors import ContextOverflowError, PlanError

if TYPE_CHECKING:
    from quail_frames.lazy.frame import LazyFrame


def io_source(frame: LazyFrame, schema: pl.Schema) -> pl.LazyFrame:
    """A plain lazy frame that runs the planned one when it is collected."""

    def source(
        with_columns: list[str] | None, predicate: pl.Expr | None, n_rows: int | None, batch_size: int | None
    ) -> Iterator[pl.DataFrame]:
        query = frame if predicate is None else frame.filter(predicate)
        query = query if n_rows is None else query.head(n_rows)
        query = query if with_columns is None else query.select(with_columns)
        return _or_empty(query.collect_batches(), query.collect_schema())

    return register_io_source(source, schema=schema, is_pure=True)


def sink_parquet(frames: Iterator[pl.DataFrame], schema: pl.Schema, path: Path, options: Mapping[str, Any]) -> None:
    """Write the frames to `<path>.partial`, then give the file its name."""
    partial = path.with_name(path.name + ".partial")
    held = HeldError()
    if options.get("mkdir"):
        path.parent.mkdir(parents=True, exist_ok=True)
    # Removed twice over: one Ctrl-C is raised by Polars, and again by Python while the first one is handled.
    with _written_alone(partial), _removed_on_failure(partial), _removed_on_failure(partial):
        try:
            plain = register_io_source(lambda *_: held.guarded(_or_empty(frames, schema)), schema=schema)
            plain.sink_parquet(partial, **options)
            held.raise_again()
        except ContextOverflowError as error:
            error.partial = pl.scan_parquet(partial)
            raise
        except ComputeError:
            held.raise_again()  # Polars before 2.0 wraps what a source raises
            raise
        os.replace(partial, path)


def local_file(path: object, options: Mapping[str, Any]) -> Path:
    """The place that a sink writes to.

    Raises
    ------
    PlanError
        It is not the path of a local file, or the sink is to be put off.
    """
    if not isinstance(path, str | os.PathLike) or "://" in os.fspath(path):
        raise PlanError(
            f"sink_parquet writes to a local file, a str or Path, not to {path!r}: for other places use "
            ".to_polars().sink_parquet(...)"
        )
    if options.get("lazy"):
        raise PlanError("sink_parquet writes at once: use .to_polars().sink_parquet(..., lazy=True) to put it off")
    place = Path(path).expanduser()
    if place.is_dir():
        raise PlanError(f"sink_parquet cannot write to {place}, which is a folder: name a file in it")
    return place


@contextmanager
def _written_alone(partial: Path) -> Iterator[None]:
    """Holds the file against other sinks to the same place, of any process, which would mix their rows into it."""
    ours = not partial.exists()
    try:
        with partial.open("ab") as file:
            if os.name == "posix":
                import fcntl

                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    raise PlanError(f"another query is writing {partial}: wait for it, or give another path") from None
            yield
    except (KeyboardInterrupt, GeneratorExit):  # it may come before anybody else takes care of the file
        if ours:
            partial.unlink(missing_ok=True)
        raise


@contextmanager
def _removed_on_failure(partial: Path) -> Iterator[None]:
    """No half a file stays behind, except the rows before a prompt that is too long."""
    try:
        yield
    except ContextOverflowError:
        raise
    except BaseException:
        partial.unlink(missing_ok=True)
        raise


class HeldError:
    """Keeps the error that a source raises inside Polars."""

    def __init__(self) -> None:
        self._error: BaseException | None = None

    def guarded(self, frames: Iterator[pl.DataFrame]) -> Iterator[pl.DataFrame]:
        """The frames; they end, instead of failing, at a prompt that is too long."""
        try:
            yield from frames
        except ContextOverflowError as error:
            self._error = error
        except BaseException as error:
            self._error = error
            raise

    def raise_again(self) -> None:
        """Raise the error, if there was one."""
        if self._error is not None:
            raise self._error


def _or_empty(frames: Iterator[pl.DataFrame], schema: pl.Schema) -> Iterator[pl.DataFrame]:
    """The frames, or one without rows where there are none: a source must say its types."""
    first = next(frames, None)
    yield pl.DataFrame(schema=schema) if first is None else first
    yield from frames
