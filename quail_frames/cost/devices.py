"""Device profiles: memory, bandwidth and matrix peaks as data.

Published figures are the vendors' dense peaks (no sparsity); where a data sheet states the peak with sparsity, it is
halved. `local`, whose peaks are measured, is in `quail_frames.cost.local`.

Sources: NVIDIA data sheets "H100 Tensor Core GPU", "H200 Tensor Core GPU" (141 GB, 4.8 TB/s; 3,958 FP8 and 1,979 BF16
TFLOPS with sparsity: the H100's arithmetic), "A100 80GB" (nvidia-1758950, SXM column), "L40S" (stated as dense |
sparse); the "HGX B200" column of the Blackwell data sheet; appendix A of the Ada GPU architecture whitepaper for the
RTX 4090 (16-bit and FP8 with FP32 accumulation, 165.2 and 330.3 TFLOPS). Apple's press releases for bandwidth, memory
and cores of M1 Max (2021-10-18: 400 GB/s, 10.4 TFLOPS), M2 Max (2023-01-17: 400 GB/s, 96 GB, 38 GPU cores) and M2
Ultra (2023-06-05: 800 GB/s, 192 GB, 76 GPU cores). Apple states no TFLOPS for M2: they follow from cores x 128 lanes
x 2 x 1.398 GHz, and agree with 10.74 and 21.47 TFLOPS that tables give for the models of 30 and 60 cores (hmc-
tech.com). H200, A100, L40S, B200, RTX 4090 and the M2s were compared with independent tables.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, field

from quail_frames.cost.shapes import Dtype
from quail_frames.errors import PlanError

_FALLBACK: dict[Dtype, Dtype] = {"fp8": "bf16", "int8": "bf16", "bf16": "fp32", "fp16": "bf16"}
"""What computes a type that the device has no arithmetic for: weights are widened on the way in."""


@dataclass(frozen=True)
class Device:
    """Memory in bytes, bandwidth in bytes/s, and peak FLOP/s for each type that the device multiplies.

    `price_per_hour` is in any currency; None where it is not known. No price is shipped: prices go stale.
    """

    name: str
    memory_bytes: float
    bandwidth: float
    peaks: Mapping[Dtype, float] = field(hash=False)
    price_per_hour: float | None = None
    shared_memory: bool = False
    """Other programs use the same memory."""

    def peak(self, dtype: Dtype) -> float:
        """FLOP/s for matrices of a type; where the device lacks it, those of the next wider type that it has.

        >>> device("a100-80").peak("fp8") == device("a100-80").peak("bf16")
        True
        """
        at: Dtype | None = dtype
        while at is not None and at not in self.peaks:
            at = _FALLBACK.get(at)
        if at is None:
            raise PlanError(f"device {self.name} states no peak for {dtype}; known: {', '.join(self.peaks)}")
        return self.peaks[at]

    def price(self, seconds: float) -> float | None:
        """Cost of `seconds` of the device; None where no price is known."""
        return None if self.price_per_hour is None else self.price_per_hour * seconds / 3600


DEVICES: dict[str, Device] = {
    device.name: device
    for device in (
        Device("h100-sxm", 80e9, 3.35e12, {"fp8": 1979e12, "int8": 1979e12, "bf16": 989.5e12, "fp32": 67e12}),
        Device("h200", 141e9, 4.8e12, {"fp8": 1979e12, "int8": 1979e12, "bf16": 989.5e12, "fp32": 67e12}),
        Device("b200", 180e9, 8e12, {"fp8": 4500e12, "int8": 4500e12, "bf16": 2250e12, "fp32": 75e12}),
        Device("a100-80", 80e9, 2.039e12, {"int8": 624e12, "bf16": 312e12, "fp32": 19.5e12}),
        Device("l40s", 48e9, 0.864e12, {"fp8": 733e12, "int8": 733e12, "bf16": 362.05e12, "fp32": 91.6e12}),
        Device("rtx-4090", 24e9, 1.008e12, {"fp8": 330.3e12, "int8": 660.6e12, "bf16": 165.2e12, "fp32": 82.6e12}),
        # Apple states one rate for its GPUs' 32-bit arithmetic; 16-bit runs at the same rate.
        Device("m1-max", 64e9, 0.4e12, {"bf16": 10.4e12, "fp32": 10.4e12}, shared_memory=True),
        Device("m2-max", 96e9, 0.4e12, {"bf16": 13.6e12, "fp32": 13.6e12}, shared_memory=True),
        Device("m2-ultra", 192e9, 0.8e12, {"bf16": 27.2e12, "fp32": 27.2e12}, shared_memory=True),
    )
}
ORDINARY_CPU = Device("ordinary-cpu", 16e9, 20e9, {"bf16": 100e9, "fp32": 100e9}, shared_memory=True)
"""A CPU that nobody has measured: a few cores at 32-bit arithmetic. Plans are compared by it, seconds are a guess."""
AMX_CPU = Device("ordinary-cpu-amx", 16e9, 20e9, {"bf16": 2e12, "fp32": 100e9}, shared_memory=True)
"""The same with AMX, units for products in bfloat16."""
UNMEASURED = frozenset({ORDINARY_CPU.name, AMX_CPU.name})
ALIASES = {"h100": "h100-sxm", "a100": "a100-80", "4090": "rtx-4090", "m-series": "m2-max"}


_GPU_NAMES = {
    "H100 80GB HBM3": "h100-sxm",
    "H200": "h200",
    "B200": "b200",
    "A100-SXM4-80GB": "a100-80",
    "L40S": "l40s",
    "RTX 4090": "rtx-4090",
}


def device_of_gpu(gpu_name: str) -> Device | None:
    """The published profile of a GPU by the name that its driver gives; None where there is none.

    >>> device_of_gpu("NVIDIA H100 80GB HBM3") is device("h100-sxm")
    True
    """
    # The whole name must match: "H100 PCIe", "RTX 4090 D" and "GB200" are other devices.
    known = _GPU_NAMES.get(gpu_name.removeprefix("NVIDIA ").removeprefix("GeForce "))
    return None if known is None else DEVICES[known]


def device(name: str) -> Device:
    """A published device by name (`local` is measured: see `quail_frames.cost.local.local_device`).

    Raises
    ------
    PlanError
        The name is not known.
    """
    key = ALIASES.get(name.lower(), name.lower())
    if key not in DEVICES:
        near = difflib.get_close_matches(key, [*DEVICES, *ALIASES], n=2)
        hint = f"did you mean {' or '.join(near)}?" if near else f"known: {', '.join(DEVICES)}, local"
        raise PlanError(f"no device profile is known by the name {name!r}; {hint}")
    return DEVICES[key]
