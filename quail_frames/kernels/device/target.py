"""What the kernels are compiled for: block sizes follow from it."""

from __future__ import annotations

import torch
import triton

INTERPRETER = 0


def architecture() -> int:
    """Compute capability as a number (90 for 9.0); 0 under the interpreter, which gets small blocks."""
    if triton.knobs.runtime.interpret:
        return INTERPRETER
    return int(triton.runtime.driver.active.get_current_target().arch)


def processors(device: torch.device) -> int:
    """Streaming multiprocessors; a persistent kernel starts one program on each."""
    return torch.cuda.get_device_properties(device).multi_processor_count if device.type == "cuda" else 2


def power_of_two(number: int) -> int:
    """Smallest power of two that is not below `number`."""
    return 1 << max(number - 1, 0).bit_length()
