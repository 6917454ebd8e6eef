"""torch's lack of memory under the name that the scheduler knows; what is done about it is in `split`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from quail_frames.errors import DeviceMemoryError


@contextmanager
def named_memory_errors() -> Iterator[None]:
    """Raises `DeviceMemoryError` for torch's out-of-memory error."""
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise DeviceMemoryError(f"a batch does not fit the device's memory ({str(error).splitlines()[0]})") from error
