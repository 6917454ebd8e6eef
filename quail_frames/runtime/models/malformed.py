"""Whatever is malformed in the files of a model is one kind of error, which says what to do about it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from quail_frames.errors import ModelError, QuailFramesError

MALFORMED = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""What readers of configs, vocabularies and headers run into when a value is not of the kind or size it should be."""


@contextmanager
def refuse_malformed(path: Path, *, fetched: bool) -> Iterator[None]:
    """Raises a `ModelError` for anything in the model's files at `path` that cannot be made sense of.

    `fetched` says that quail-frames fetched the file itself and can do so again.
    """
    try:
        yield
    except ModelError as error:
        if not fetched:
            raise
        raise ModelError(f"{error} To have it fetched again, delete {path}.") from error
    except QuailFramesError:
        raise
    except MALFORMED as error:
        again = f"delete {path}, and it is fetched again" if fetched else "fetch its files again"
        raise ModelError(f"{path} holds something malformed ({type(error).__name__}: {error}): {again}.") from error
