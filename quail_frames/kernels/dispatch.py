"""Which implementation runs each operation on each device.

The choice is made once per operation and device, at its first use or by `choices` at start, and does not depend on
timings, so that two processes on equal machines choose alike. `QUAIL_FRAMES_KERNELS` and `override` change it for
the process, `pinned` for an engine.
"""

from __future__ import annotations

import functools
import importlib
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import torch

ENVIRONMENT = "QUAIL_FRAMES_KERNELS"


@dataclass(frozen=True)
class Candidate:
    """One way to run an operation.

    `target` is `module:function` below `quail_frames.kernels`, imported at first use. `least` is the smallest CUDA
    compute capability. `check` (a target too) compares the candidate with the reference on the device itself and
    returns what is wrong, or None; other people's libraries change between versions, so each has one.
    """

    name: str
    target: str
    package: str | None = None
    least: tuple[int, int] = (0, 0)
    most: tuple[int, int] = (99, 0)
    check: str | None = None


@dataclass(frozen=True)
class Choice:
    """What runs `operation` on `device`, and why the better-ranked candidates were left."""

    operation: str
    device: str
    name: str
    passed_over: tuple[tuple[str, str], ...]

    def __str__(self) -> str:
        why = "".join(f"; {name}: {reason}" for name, reason in self.passed_over)
        return f"{self.operation}: {self.name}{why}"


_BF16, _FP8 = (8, 0), (8, 9)


def _two(operation: str, module: str, least: tuple[int, int]) -> tuple[Candidate, ...]:
    """Triton, then the reference."""
    triton = Candidate("triton", f"device.{module}:{operation}", package="triton", least=least)
    return (triton, Candidate("torch", f"{module}:{operation}_reference"))


def _vendor(name: str, target: str, check: str, package: str | None, least: tuple[int, int] = (9, 0)) -> Candidate:
    """A library's Hopper kernels by default: what it ships for newer cards takes other scale and page layouts."""
    return Candidate(name, f"vendor.{target}", package, least, (9, 0), f"vendor.{check}")


_MATMUL_VENDORS = (
    _vendor("deep_gemm", "block_scaled_matmul:deep_gemm_matmul", "block_scaled_matmul:check_deep_gemm", "deep_gemm"),
    _vendor("torch_scaled_mm", "block_scaled_matmul:torch_scaled_matmul", "block_scaled_matmul:check_torch", None),
)
_FA3, _FA2 = "flash_attn_interface", "flash_attn"
_PREFIX_VENDORS = (
    _vendor("flash_attention_3", "attention:flash_3_prefix_attention", "attention:check_flash_3_prefix", _FA3),
)
_SUFFIX_VENDORS = (
    _vendor("flash_attention_3", "attention:flash_3_suffix_attention", "attention:check_flash_3_suffix", _FA3),
    _vendor("flash_attention_2", "attention:flash_2_suffix_attention", "attention:check_flash_2_suffix", _FA2, _BF16),
)

OPERATIONS: dict[str, tuple[Candidate, ...]] = {
    "quantize": _two("quantize", "quantize", _FP8),
    "add_rms_norm": _two("add_rms_norm", "add_rms_norm", _BF16),
    "add_rms_norm_quantize": _two("add_rms_norm_quantize", "add_rms_norm", _FP8),
    "qk_norm_rope_write": _two("qk_norm_rope_write", "qk_norm_rope_write", _BF16),
    "silu_mul": _two("silu_mul", "gated_activation", _BF16),
    "silu_mul_quantize": _two("silu_mul_quantize", "gated_activation", _FP8),
    "block_scaled_matmul": (*_MATMUL_VENDORS, *_two("block_scaled_matmul", "block_scaled_matmul", _FP8)),
    "prefix_attention": (*_PREFIX_VENDORS, *_two("prefix_attention", "attention", _BF16)),
    "suffix_attention": (*_SUFFIX_VENDORS, *_two("suffix_attention", "attention", _BF16)),
    "unified_attention": _two("unified_attention", "attention", _BF16),
    "merge_attention": _two("merge_attention", "merge_attention", _BF16),
    "merge_attention_quantize": _two("merge_attention_quantize", "merge_attention", _FP8),
    "restricted_head": _two("restricted_head", "restricted_head", _BF16),
}
"""Candidates of each operation, best first."""

Pins = tuple[tuple[str, str], ...]
"""Operations and the candidates that they are held to."""
_overrides: dict[str, str] = {}
_pins: ContextVar[Pins] = ContextVar("quail_frames_kernels", default=())


def implementation(operation: str, device: torch.device) -> Callable[..., Any]:
    """The function that runs `operation` on `device`; has the signature of the operation's reference."""
    return _chosen(operation, *_place(device), _pins.get())[1]


def choices(device: torch.device | str) -> tuple[Choice, ...]:
    """What runs every operation on `device`, in the order of `OPERATIONS`.

    >>> print(choices("cpu")[0])
    quantize: torch; triton: no CUDA device
    """
    place = _place(torch.device(device))
    return tuple(_chosen(operation, *place, _pins.get())[0] for operation in OPERATIONS)


def override(**names: str) -> None:
    """Pins operations to candidates by name: `override(prefix_attention="torch")`; `all="torch"` pins every one.

    Replaces earlier pins; with no argument only `QUAIL_FRAMES_KERNELS` is left. Raises ValueError for unknown names.
    """
    _validate(names, "override")
    _overrides.clear()
    _overrides.update(names)
    _chosen.cache_clear()


@contextmanager
def using(**names: str) -> Iterator[None]:
    """`override` for the length of a with statement."""
    before = dict(_overrides)
    override(**{**before, **names})
    try:
        yield
    finally:
        override(**before)


@contextmanager
def pinned(names: Mapping[str, str]) -> Iterator[None]:
    """Pins in this thread alone, before those of the process: what one engine was told.

    >>> with pinned({"all": "torch"}):
    ...     str(choices("cpu")[0])
    'quantize: torch'
    """
    token = _pins.set(tuple(names.items()))
    try:
        yield
    finally:
        _pins.reset(token)


def _place(device: torch.device) -> tuple[str, int | None]:
    """Type and number of a device: "cuda" means the current one, and a choice is made once for it."""
    index = torch.cuda.current_device() if device.type == "cuda" and device.index is None else device.index
    return device.type, index


@functools.cache
def _chosen(operation: str, device_type: str, index: int | None, pins: Pins) -> tuple[Choice, Callable[..., Any]]:
    device = torch.device(device_type, index) if index is not None else torch.device(device_type)
    held_to = _pinned(operation, pins)
    passed_over: list[tuple[str, str]] = []
    for candidate in OPERATIONS[operation]:
        if held_to is not None and candidate.name != held_to:
            continue
        reason = _why_not(candidate, device, held_to is not None)
        if reason is None:
            choice = Choice(operation, str(device), candidate.name, tuple(passed_over))
            return choice, load(candidate.target)
        passed_over.append((candidate.name, reason))
    raise ValueError(f"{operation} is pinned to {held_to!r}, which cannot run on {device}: {passed_over[0][1]}")


def _pinned(operation: str, pins: Pins) -> str | None:
    names = {**parse_pins(os.environ.get(ENVIRONMENT, "")), **_overrides, **dict(pins)}
    pinned = names.get(operation, names.get("all"))
    offered = {candidate.name for candidate in OPERATIONS[operation]}
    # `all=deep_gemm` can only speak for the operations that have it.
    return pinned if pinned in offered else None


def parse_pins(text: str, source: str = ENVIRONMENT) -> dict[str, str]:
    """Pins in the form `triton` (every operation) or `operation=name,operation=name`.

    >>> parse_pins("triton,restricted_head=torch")
    {'all': 'triton', 'restricted_head': 'torch'}
    """
    parts = [part.strip().partition("=") for part in text.split(",") if part.strip()]
    names = {left.strip() if sign else "all": (right if sign else left).strip() for left, sign, right in parts}
    _validate(names, source)
    return names


def _validate(names: dict[str, str], source: str) -> None:
    every = {candidate.name for candidates in OPERATIONS.values() for candidate in candidates}
    for operation, name in names.items():
        if operation != "all" and operation not in OPERATIONS:
            raise ValueError(f"{source}: no operation {operation!r}; there are: all, {', '.join(OPERATIONS)}")
        offered = every if operation == "all" else {candidate.name for candidate in OPERATIONS[operation]}
        if name not in offered:
            raise ValueError(f"{source}: {operation} has no candidate {name!r}; choose of {', '.join(sorted(offered))}")


def _why_not(candidate: Candidate, device: torch.device, pinned: bool) -> str | None:
    """Why the candidate cannot run on the device; None where it can."""
    if candidate.name == "torch":
        return None
    if device.type != "cuda":
        interpreted = candidate.name == "triton" and pinned and os.environ.get("TRITON_INTERPRET") == "1"
        return None if interpreted else "no CUDA device"
    if candidate.package is not None and find_spec(candidate.package) is None:
        return f"{candidate.package} is not installed"
    capability = torch.cuda.get_device_capability(device)
    if not candidate.least <= capability <= candidate.most:
        return f"compute capability {capability[0]}.{capability[1]} is outside what it supports"
    return None if candidate.check is None else failed_check(candidate.check, device)


def failed_check(check: str, device: torch.device) -> str | None:
    """What a candidate's check finds wrong on the device; None if nothing."""
    current = torch.cuda.device(device) if device.type == "cuda" else nullcontext()  # where libraries launch
    try:
        with current:
            wrong: str | None = load(check)(device)
    except Exception as error:  # whatever another library raises says that it cannot be used; the reason is kept
        return f"its check failed: {type(error).__name__}: {error}"
    return wrong


def load(target: str) -> Callable[..., Any]:
    """The function that a `module:function` target names."""
    module, _, function = target.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(f"quail_frames.kernels.{module}"), function)
    return found
