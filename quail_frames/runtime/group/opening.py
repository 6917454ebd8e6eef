"""What is settled before a group's processes start: the devices, and what each engine would else measure for itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from quail_frames.errors import ModelError


def all_devices() -> list[str]:
    """Every CUDA device of this machine."""
    import torch

    names = [f"cuda:{index}" for index in range(torch.cuda.device_count())]
    if not names:
        raise ModelError(
            "devices='all': there is no CUDA device here. Use an Engine on device='cpu', or name devices, for example "
            "devices=['cpu', 'cpu']."
        )
    return names


def settled(model: str, devices: Sequence[str], options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a group's engines, with `products="auto"` made the library that is fastest here on a CPU.

    Measured once, so that all engines' scores agree to the last digit.
    """
    native = options.get("backend", "native") == "native" and model != "oracle"
    multiplying = native and any(device.partition(":")[0] == "cpu" for device in devices)
    if not multiplying or options.get("products", "auto") != "auto":
        return dict(options)
    from quail_frames.runtime.lanes import Lanes
    from quail_frames.runtime.models.load import resolve_dtype, torch_device
    from quail_frames.runtime.torch_model import chosen

    dtype = resolve_dtype(options.get("dtype", "auto"), torch_device("cpu"))
    return {**options, "products": chosen("auto", dtype, Lanes(1))}
