"""What an engine is told, checked before anything is loaded. Imports no other room."""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from typing import Any, Literal, get_args

from quail_frames.errors import ModelError

DEFAULT_MODEL = "smollm2-135m-decide"
Dtype = Literal["auto", "float32", "bfloat16", "float16"]
AttentionPath = Literal["auto", "tree", "unified"]
Library = Literal["torch", "numpy", "onednn"]
"""Who multiplies matrices on a CPU."""
Products = Literal["auto", "torch", "numpy", "onednn"]


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
    if not isinstance(device, str) or not device:
        raise ModelError(f"device={device!r} is no device: give a str such as 'cpu'")
    _check_choice("dtype", dtype, get_args(Dtype))
    _check_choice("attention", attention, get_args(AttentionPath))
    _check_choice("products", products, get_args(Products))
    _check_count("kv_budget", kv_budget, 0, "bytes of KV memory, such as 64 << 20")
    _check_count("token_budget", token_budget, 1, "tokens of a batch, such as 2048")
    _check_count("max_length", max_length, 1, "tokens of the longest prompt, such as 4096")
    return str(os.fspath(model))


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
