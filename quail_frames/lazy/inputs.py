"""From columns of a frame to the texts that a call reads, and the checks of both.

Text is taken as it is; numbers, dates, booleans and categoricals are rendered as Polars
casts them to String.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import polars as pl
import pyarrow as pa

from quail_frames.errors import ColumnError
from quail_frames.lazy.calls import nearest
from quail_frames.plan.calls import AiCall

_ADVICE = {
    pl.List: "explode it, or join its elements into one text with .list.join(', ')",
    pl.Array: "convert it with .arr.to_list() and join its elements into one text with .list.join(', ')",
    pl.Struct: "use one of its fields (.struct.field(...)), or render it with .struct.json_encode()",
    pl.Duration: "render it first, for example with .dt.to_string('iso')",
    pl.Binary: "decode it first, for example with .cast(pl.String) where it holds UTF-8",
    pl.Object: "render it to a String column first",
}
BATCH_ROWS = 2048
BATCH_BYTES = 8 << 20


def check_columns(call: AiCall, reads: Sequence[frozenset[str] | None], schema: pl.Schema) -> None:
    """Every column that the call reads is in the frame, or a `ColumnError` names the nearest one."""
    for names in reads:
        for name in sorted(names or ()):
            if name not in schema:
                raise ColumnError(
                    f"{call.output_name()!r} asks about column {name!r}, which the frame does not have"
                    f"{nearest(name, schema.names())}"
                )


def check_dtype(call: AiCall, name: str, dtype: pl.DataType) -> None:
    """The input can be rendered as text, or a `ColumnError` says how to get there."""
    for kind, advice in _ADVICE.items():
        if isinstance(dtype, kind):
            raise ColumnError(f"{call.output_name()!r} asks about column {name!r} of type {dtype}: {advice}")


def as_text(expr: pl.Expr) -> pl.Expr:
    """The expression's values as texts; nulls stay null."""
    return expr.cast(pl.String)


def to_record_batch(frame: pl.DataFrame) -> pa.RecordBatch:
    """Texts (String) and masks (Boolean) as the runtime takes them."""
    table = frame.to_arrow(compat_level=pl.CompatLevel.oldest())
    types = [pa.string() if field.type == pa.large_string() else field.type for field in table.schema]
    schema = pa.schema(list(zip(table.column_names, types, strict=True)))
    batches = table.cast(schema).combine_chunks().to_batches()
    return batches[0] if batches else pa.RecordBatch.from_pylist([], schema=schema)


def pieces(frame: pl.DataFrame) -> Iterator[pl.DataFrame]:
    """The frame cut so that a piece holds at most `BATCH_ROWS` rows and about `BATCH_BYTES` bytes."""
    if frame.height == 0:
        return
    width = max(1, int(frame.estimated_size()) // frame.height)
    yield from frame.iter_slices(max(1, min(BATCH_ROWS, BATCH_BYTES // width)))
