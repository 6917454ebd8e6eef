"""What an engine is told, checked before anything is loaded. Imports no other room."""

from __future__ import annotations

import operator
import os
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from quail_frames.errors import ModelError

DEFAULT_MODEL = "smollm2-135m-decide"
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
AttentionPath = Literal["auto", "tree", "unified"]
Library = Literal["torch", "numpy", "onednn", "amx"]
"""Who multiplies matrices on a CPU."""
DEVICES = r"cpu|cuda(:[0-9]+)?|kernels|null|simulated:.+"
Products = Literal["auto", "torch", "numpy", "onednn", "amx"]


def check_options(
    model: Any,
    *,
    device: Any = "cpu",
    dtype: Any = "auto",
    kv_budget: Any = None,
    token_budget: Any = None,
    max_length: Any = None,
    attention: Any = "auto",
    products: Any = "auto",
) -> str:
    """The model's name as a str, where everything is of a usable kind.

    Raises
    ------
    ModelError
        Names the option at fault and what it takes.

    Examples
    --------
    >>> check_options("oracle", kv_budget=64 << 20)
    'oracle'
    """
    if not isinstance(model, str | os.PathLike) or not str(os.fspath(model)).strip():
        raise ModelError(
            f"model={model!r} names no model: give {DEFAULT_MODEL!r}, a path to a .gguf file or a folder, "
            "or a Hugging Face id ('owner/name')"
        )
    _check_device(device)
    _check_choice("dtype", dtype, get_args(Dtype))
    _check_choice("attention", attention, get_args(AttentionPath))
    _check_choice("products", products, get_args(Products))
    _check_count("kv_budget", kv_budget, 0, "bytes of KV memory, such as 64 << 20")
    _check_count("token_budget", token_budget, 1, "tokens of a batch, such as 2048")
    _check_count("max_length", max_length, 1, "tokens of the longest prompt, such as 4096")
    return str(os.fspath(model))


def check_devices(devices: Any, device: Any = "cpu") -> tuple[str, ...] | Literal["all"] | None:
    """Several devices, in a form that can be compared; None where one device is meant.

    Raises
    ------
    ModelError
        They are no names of devices, or `device` is given too.

    Examples
    --------
    >>> check_devices(["cuda:0", "cuda:1"])
    ('cuda:0', 'cuda:1')
    """
    if devices is None:
        return None
    if device != "cpu":
        raise ModelError(f"device= and devices= are both given ({device!r}, {devices!r}): leave one out")
    if devices == "all":
        return "all"
    names = None if isinstance(devices, str) or not isinstance(devices, Sequence) else tuple(devices)
    if names is None or not all(isinstance(name, str) and name for name in names):
        raise ModelError(f"devices={devices!r}: give 'all' or a list of names, such as devices=['cuda:0', 'cuda:1']")
    if not names:
        raise ModelError("devices=[]: name at least one device, for example devices=['cuda:0', 'cuda:1']")
    for name in names:
        _check_device(name)
    return names


def check_kernels(kernels: Any, device: Any) -> str | None:
    """Pins of operations to implementations, as one text; None where there are none.

    Raises
    ------
    ModelError
        They are of no kind that says that, or the device (None: not looked at) does not run these kernels. Which names
        there are is seen when the engine opens.

    Examples
    --------
    >>> check_kernels({"all": "triton", "restricted_head": "torch"}, "cuda")
    'all=triton,restricted_head=torch'
    """
    if kernels is None:
        return None
    if isinstance(kernels, Mapping):
        kernels = ",".join(f"{operation}={name}" for operation, name in kernels.items())
    if not isinstance(kernels, str) or not kernels.strip():
        raise ModelError(f"kernels={kernels!r}: give a str such as 'torch' or 'prefix_attention=triton', or a mapping")
    if device is not None and device != "kernels" and not device.startswith("cuda"):
        raise ModelError(f"kernels={kernels!r} has no effect on device={device!r}: it is for 'cuda' and 'kernels'")
    return kernels


def _check_device(device: Any) -> None:
    if not isinstance(device, str) or not re.fullmatch(DEVICES, device):
        raise ModelError(
            f"device={device!r} is no device: choose 'cpu', 'cuda' or 'cuda:1'; or 'kernels', 'null' or "
            "'simulated:h100-sxm' to study a plan without a GPU"
        )


def _check_choice(option: str, value: Any, valid: Sequence[str]) -> None:
    if value not in valid:
        raise ModelError(f"{option}={value!r} is unknown: choose {', '.join(map(repr, valid))}")


def _check_count(option: str, value: Any, least: int, what: str) -> None:
    if value is None:
        return
    try:
        count = operator.index(value)
    except TypeError:
        count = -1
    if isinstance(value, bool) or count < least:
        raise ModelError(
            f"{option}={value!r} is not a number of {what}: give an integer from {least} on, or None for the default"
        )
