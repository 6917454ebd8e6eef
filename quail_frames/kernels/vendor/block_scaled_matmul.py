"""`block_scaled_matmul` by DeepGEMM and by torch (cuBLAS, CUDA 12.9 or newer), both on compute capability 9.0.

What they do not take (inputs that are no multiple of 128, another output type) goes to Triton.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from quail_frames.kernels.block_scaled_matmul import block_scaled_matmul_reference
from quail_frames.kernels.quantize import GROUP, Quantized, quantize_reference

TOLERANCE = 2**-7
"""bfloat16 keeps eight bits; a wrong scale is off by far more."""


def deep_gemm_matmul(
    x: Quantized, weight: Tensor, weight_scales: Tensor, out_dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """See `quail_frames.kernels.block_scaled_matmul.block_scaled_matmul`."""
    import deep_gemm

    if not _taken(x, weight, out_dtype):
        return _triton(x, weight, weight_scales, out_dtype)
    out = torch.empty(len(x.values), len(weight), dtype=out_dtype, device=weight.device)
    deep_gemm.fp8_gemm_nt((x.values, x.scales), (weight, weight_scales), out)
    return out


def torch_scaled_matmul(
    x: Quantized, weight: Tensor, weight_scales: Tensor, out_dtype: torch.dtype = torch.bfloat16
) -> Tensor:
    """See `quail_frames.kernels.block_scaled_matmul.block_scaled_matmul`."""
    if not _taken(x, weight, out_dtype):
        return _triton(x, weight, weight_scales, out_dtype)
    tokens = len(x.values)
    x, columns = cublas_scales(x, weight_scales)
    kinds = functional.ScalingType
    out: Tensor = functional.scaled_mm(
        *(x.values, weight.t(), x.scales, kinds.BlockWise1x128, columns, kinds.BlockWise128x128),
        output_dtype=out_dtype,
    )
    return out[:tokens]


def cublas_scales(x: Quantized, weight_scales: Tensor) -> tuple[Quantized, Tensor]:
    """Both sides' scales as cuBLAS reads them.

    Activation scales lie column by column, for a number of tokens padded to a multiple of 4 (so the values are padded
    too); weight scales are (input blocks, output blocks), input blocks padded to a multiple of 4 and contiguous.
    """
    missing = -len(x.values) % 4
    if missing:
        values = functional.pad(x.values.view(torch.uint8), (0, 0, 0, missing)).view(x.values.dtype)
        x = Quantized(values, functional.pad(x.scales, (0, 0, 0, missing)))
    columns = functional.pad(weight_scales, (0, -weight_scales.shape[1] % 4)).t()
    return Quantized(x.values, x.scales.t().contiguous().t()), columns


def check_deep_gemm(device: torch.device) -> str | None:
    """What is wrong with `deep_gemm_matmul` on the device; None if nothing is."""
    return _check(deep_gemm_matmul, device)


def check_torch(device: torch.device) -> str | None:
    """What is wrong with `torch_scaled_matmul` on the device; None if nothing is."""
    return _check(torch_scaled_matmul, device)


def _check(run: Callable[..., Tensor], device: torch.device) -> str | None:
    """Compares on 77 tokens, 640 inputs and 384 outputs: no count of tokens or blocks is a multiple of 4."""
    generator = torch.Generator(device).manual_seed(0)
    x = quantize_reference(torch.randn(77, 640, generator=generator, device=device))
    weight = torch.randn(384, 640, generator=generator, device=device).to(torch.float8_e4m3fn)
    scales = torch.rand(3, 5, generator=generator, device=device) + 0.5
    wanted = block_scaled_matmul_reference(x, weight, scales, torch.float32)
    error = (run(x, weight, scales).float() - wanted).abs().max() / wanted.abs().max()
    return None if error < TOLERANCE else f"differs from the reference by {error.item():.1e} of the largest value"


def _taken(x: Quantized, weight: Tensor, out_dtype: torch.dtype) -> bool:
    whole = weight.shape[0] % GROUP == 0 and weight.shape[1] % GROUP == 0
    return whole and out_dtype == torch.bfloat16 and len(x.values) > 0


def _triton(x: Quantized, weight: Tensor, weight_scales: Tensor, out_dtype: torch.dtype) -> Tensor:
    from quail_frames.kernels.device.block_scaled_matmul import block_scaled_matmul

    return block_scaled_matmul(x, weight, weight_scales, out_dtype)
