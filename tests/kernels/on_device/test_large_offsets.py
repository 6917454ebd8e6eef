"""Element offsets past 2^31 are computed in 64 bits: rows, slots, pages and vocabulary rows that lie far out.

The tensors are views into untouched zero pages of an anonymous mapping, so they cost address space, not memory.
"""

from __future__ import annotations

import mmap
import sys

import pytest
import torch
from torch import Tensor

from quail_frames.kernels import PagedContexts, QueryGroups
from quail_frames.kernels.quantize import Quantized, quantize_reference
from tests.kernels.comparison import DEVICE, agree, randn, run

FAR = 2**31 + 2**20
pytestmark = pytest.mark.skipif(
    DEVICE.type == "cuda" or not sys.platform.startswith("linux"), reason="needs untouched memory to be free"
)


def sparse(*shape: int, stride: int) -> Tensor:
    """Zeros whose first dimension has this stride in elements; only what is written takes memory."""
    tail = torch.Size(shape[1:]).numel()
    flat = torch.frombuffer(mmap.mmap(-1, 4 * ((shape[0] - 1) * stride + tail)), dtype=torch.float32)
    inner = torch.empty(shape[1:]).stride()
    return flat.as_strided(shape, (stride, *inner))


def far_fp8(values: Tensor) -> Tensor:
    """The same rows of e4m3, the last of which begins past 2^31 elements."""
    stride = -(-FAR // (len(values) - 1))
    flat = torch.frombuffer(mmap.mmap(-1, FAR + values.shape[1] + stride), dtype=torch.uint8)
    far = flat.as_strided(values.shape, (stride, 1))
    far[:] = values.view(torch.uint8)
    return far.view(torch.float8_e4m3fn)


def far_rows(seed: int, rows: int, *tail: int) -> Tensor:
    """Random rows, the last of which begins past 2^31 elements."""
    x = sparse(rows, *tail, stride=-(-FAR // (rows - 1)))
    x[:] = randn(seed, rows, *tail)
    return x


@pytest.mark.parametrize("operation", ["quantize", "silu_mul"])
def test_far_rows(operation: str) -> None:
    agree(operation, far_rows(1, 3, 256), *([torch.float32] if operation == "quantize" else []))


def test_norm_of_far_rows() -> None:
    agree("add_rms_norm", far_rows(1, 3, 200), far_rows(2, 3, 200), randn(3, 200), 1e-6)


def test_head_rows_and_hidden_rows_far_out() -> None:
    rows, candidates = torch.tensor([0, 2]), torch.tensor([[0, 2], [2, -1]])
    agree("restricted_head", far_rows(1, 3, 64), rows, far_rows(2, 3, 64), candidates)


def test_matmul_of_far_rows() -> None:
    x = quantize_reference(randn(1, 3, 128))
    weight = randn(2, 3, 128).to(torch.float8_e4m3fn)
    far_x = Quantized(far_fp8(x.values), x.scales)
    scales = torch.ones(1, 1)
    near = run("block_scaled_matmul", "triton", x, weight, scales, torch.float32)
    far = run("block_scaled_matmul", "triton", far_x, far_fp8(weight), scales, torch.float32)
    assert torch.equal(near[0], far[0])


def test_keys_written_to_and_read_from_far_slots() -> None:
    arenas = [sparse(48, 1, 16, stride=-(-FAR // 32)) for _ in range(2)]
    slots, contexts = (
        torch.arange(32, 48),
        lambda page: PagedContexts(
            torch.tensor([page], dtype=torch.int32), torch.tensor([0]), torch.tensor([16], dtype=torch.int32)
        ),
    )
    qkv = randn(3, 16, 4 * 16)
    q, k, v = run("qk_norm_rope_write", "triton", qkv, 2, 1, slots, None, None, None, 1e-6, *arenas, slots)
    assert torch.equal(arenas[0][32:], k)
    assert torch.equal(arenas[1][32:], v)
    groups = QueryGroups.of([16])
    far = run("prefix_attention", "triton", q, *arenas, contexts(2), groups, 0.3)
    near = run("prefix_attention", "triton", q, k, v, contexts(0), groups, 0.3)
    assert torch.equal(far[0], near[0])
    assert torch.equal(far[1], near[1])
