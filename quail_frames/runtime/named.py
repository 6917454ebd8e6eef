"""What is known of an engine before it is opened: of a model by its name, and the budgets that a CPU gives."""

from __future__ import annotations

import os
from dataclasses import replace

from quail_frames.cost.cpu import cpu_has_amx
from quail_frames.cost.shapes import ModelShape, known_shape
from quail_frames.runtime.compiled import DecisionFormat, ModelTraits
from quail_frames.runtime.models.adapter_file import adapter_path, read_header

GIB = 1 << 30
CPU_TOKEN_BUDGET = 2048
"""Tokens of a batch on a CPU where none are asked for."""
AMX_TOKEN_BUDGET = 6144
"""The same in bfloat16 on a CPU with AMX: 1.05 to 1.16 times as fast as 2,048 (filters,
a join and classifications of `benchmarks.peers`, two cores), and as fast as 8,192."""


def cpu_token_budget(bfloat16: bool) -> int:
    """Tokens of a batch on this CPU, for weights in bfloat16 or wider ones."""
    return AMX_TOKEN_BUDGET if bfloat16 and cpu_has_amx() else CPU_TOKEN_BUDGET


def cpu_kv_bytes() -> int:
    """KV memory on a CPU where none is asked for: a quarter of the machine's, at most 4 GiB."""
    return min(_physical_memory() // 4, 4 * GIB)


def shape_named(model: str) -> ModelShape | None:
    """The sizes of a model, of an adapter's base, or None where the name says nothing of them."""
    adapter = adapter_path(model)
    found = known_shape(model if adapter is None else read_header(adapter).base)
    return None if found is None else replace(found, name=model)


def traits_named(model: str) -> ModelTraits:
    """How the model of this name is asked: an adapter's header says it, of others nothing is known.

    >>> traits_named("smollm2-135m-decide").default_label_scoring
    'decision_choice'
    """
    adapter = adapter_path(model)
    if adapter is None:
        return ModelTraits()
    header = read_header(adapter)
    spec = {**header.spec, "default_label_scoring": header.spec.get("label_scoring")}
    spec.pop("label_scoring", None)
    return ModelTraits(**spec, decision=DecisionFormat() if header.has_head else None)


def _physical_memory() -> int:
    """Bytes of memory of this machine (POSIX; 8 GiB are assumed elsewhere)."""
    if not hasattr(os, "sysconf"):
        return 8 * GIB
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
