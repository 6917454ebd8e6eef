"""What each engine of a group would measure for itself, measured once: their scores agree to the last digit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any


def settled(model: str, devices: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a group's engines, with `products="auto"` made the library that is fastest here on a CPU."""
    native = options.get("backend", "native") == "native" and model != "oracle"
    multiplying = native and any(device.partition(":")[0] == "cpu" for device in devices)
    if not multiplying or options.get("products", "auto") != "auto":
        return dict(options)
    from quail_frames.runtime.lanes import Lanes
    from quail_frames.runtime.models.load import resolve_dtype, torch_device
    from quail_frames.runtime.torch_model import chosen

    dtype = resolve_dtype(options.get("dtype", "auto"), torch_device("cpu"))
    return {**options, "products": chosen("auto", dtype, Lanes(1))}
