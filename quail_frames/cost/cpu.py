"""What the system says of its CPU; loads nothing."""

from __future__ import annotations

import platform
from pathlib import Path


def cpu_model() -> str:
    """Name of the CPU as the system states it."""
    return _cpu_states("model name") or platform.processor() or platform.machine()


def cpu_has_amx() -> bool:
    """Whether the CPU has units for products in bfloat16, as Linux states it: torch knows too, but loads for long."""
    return "amx_bf16" in _cpu_states("flags").split()


def _cpu_states(what: str) -> str:
    """What Linux says of the first core; nothing elsewhere."""
    info = Path("/proc/cpuinfo")
    lines = info.read_text(encoding="utf-8").splitlines() if info.exists() else []
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith(what)), "")
