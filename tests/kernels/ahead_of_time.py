"""Compiles every Triton kernel for absent GPUs; reads registers, shared memory, spills and instructions.

    python tests/kernels/ahead_of_time.py 90 89          prints one JSON object a line
    python tests/kernels/ahead_of_time.py 80 89 90 100 --write docs/kernels.md    rewrites the table in that page

The launchers themselves run, at Qwen3-4B shapes, on a driver that only names the target: block sizes, argument
specialisation and options are those of a real launch. Needs Triton and no GPU; not under TRITON_INTERPRET.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import KernelInterface

from quail_frames.kernels import PagedContexts, Quantized, QueryGroups, SuffixMask, Window
from quail_frames.kernels.device import (
    add_rms_norm,
    attention,
    block_scaled_matmul,
    gated_activation,
    merge_attention,
    qk_norm_rope_write,
    quantize,
    restricted_head,
)

TOOLS = Path(triton.__file__).parent / "backends" / "nvidia" / "bin"
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, MLP, TOKENS = 2560, 32, 8, 128, 9728, 512


@dataclass(frozen=True)
class Compiled:
    """One kernel on one target; bytes and counts a thread or program, as the assembler reports them."""

    case: str
    capability: int
    registers: int
    shared_bytes: int
    stack_bytes: int
    local_loads_stores: int
    warps: int
    tensor_core: str


class TargetOnly:
    """Stands where Triton keeps the driver: names a target, launches nothing."""

    def __init__(self, capability: int) -> None:
        self._target = GPUTarget("cuda", capability, 32)

    def get_current_target(self) -> GPUTarget:
        return self._target

    def get_current_device(self) -> int:
        return self._target.arch

    def get_current_stream(self, _: int) -> int:
        return 0


def cases(capability: int) -> dict[str, Callable[[], Any]]:
    """Launches to compile, by name; FP8 ones need compute capability 8.9."""
    every = {**_row_kernels(), **_attention_kernels()}
    return {name: launch for name, launch in every.items() if capability >= 89 or not name.endswith("fp8")}


def _bf16(*shape: int) -> torch.Tensor:
    return torch.empty(*shape, dtype=torch.bfloat16)


def _row_kernels() -> dict[str, Callable[[], Any]]:
    x, weight = _bf16(TOKENS, HIDDEN), _bf16(HIDDEN)
    out, lse = _bf16(TOKENS, HEADS, HEAD_DIM), torch.empty(TOKENS, HEADS)
    slots = torch.zeros(TOKENS, dtype=torch.int64)
    arena = _bf16(TOKENS, KV_HEADS, HEAD_DIM)
    qkv = _bf16(TOKENS, (HEADS + 2 * KV_HEADS) * HEAD_DIM)
    head = _bf16(HEAD_DIM)
    rope = torch.empty(TOKENS, HEAD_DIM)
    positions = torch.zeros(TOKENS, dtype=torch.int32)
    return {
        "quantize fp8": partial(quantize.quantize, x),
        "add_rms_norm bf16": partial(add_rms_norm.add_rms_norm, x, x, weight, 1e-6),
        "add_rms_norm_quantize fp8": partial(add_rms_norm.add_rms_norm_quantize, x, x, weight, 1e-6),
        "silu_mul bf16": partial(gated_activation.silu_mul, _bf16(TOKENS, 2 * MLP)),
        "silu_mul_quantize fp8": partial(gated_activation.silu_mul_quantize, _bf16(TOKENS, 2 * MLP)),
        "merge_attention bf16": partial(merge_attention.merge_attention, out, lse, out, lse),
        "merge_attention_quantize fp8": partial(merge_attention.merge_attention_quantize, out, lse, out, lse),
        "qk_norm_rope_write bf16": partial(
            qk_norm_rope_write.qk_norm_rope_write,
            *(qkv, HEADS, KV_HEADS, positions, rope, head, head, 1e-6, arena, arena, slots),
        ),
        "restricted_head bf16": partial(
            restricted_head.restricted_head, x, slots[:16], _bf16(4096, HIDDEN), slots[:128].reshape(16, 8)
        ),
        "block_scaled_matmul fp8": partial(_matmul, TOKENS),
        "block_scaled_matmul, 64 tokens, fp8": partial(_matmul, 64),
    }


def _matmul(tokens: int) -> torch.Tensor:
    fp8 = torch.float8_e4m3fn
    x = Quantized(torch.empty(tokens, HIDDEN, dtype=fp8), torch.empty(tokens, HIDDEN // 128))
    weight = torch.empty(HEADS * HEAD_DIM, HIDDEN, dtype=fp8)
    return block_scaled_matmul.block_scaled_matmul(x, weight, torch.empty(HEADS * HEAD_DIM // 128, HIDDEN // 128))


def _attention_kernels() -> dict[str, Callable[[], Any]]:
    q, k = _bf16(TOKENS, HEADS, HEAD_DIM), _bf16(TOKENS, KV_HEADS, HEAD_DIM)
    arena = _bf16(1024, KV_HEADS, HEAD_DIM)
    groups, short = QueryGroups.of([TOKENS // 2] * 2), QueryGroups.of([16] * (TOKENS // 16))
    scattered = QueryGroups.of([TOKENS // 2] * 2, rows=np.arange(TOKENS))
    pages = torch.zeros(64, dtype=torch.int32)
    one = PagedContexts(pages, torch.zeros(2, dtype=torch.int64), torch.full((2,), 512, dtype=torch.int32))
    index = torch.zeros(TOKENS, dtype=torch.int32)
    tree, closed, window = SuffixMask(index), SuffixMask(index, index), Window(index, 1024)
    prefix, suffix = attention.prefix_attention, attention.suffix_attention
    wide_q, wide_k, wide_arena = _bf16(TOKENS, 8, 256), _bf16(TOKENS, 4, 256), _bf16(1024, 4, 256)
    return {
        "prefix_attention bf16": partial(prefix, q, arena, arena, one, groups, 0.1),
        "prefix_attention, scattered rows, bf16": partial(prefix, q, arena, arena, one, scattered, 0.1),
        "suffix_attention, causal, bf16": partial(suffix, q, k, k, groups, 0.1),
        "suffix_attention, tree, bf16": partial(suffix, q, k, k, short, 0.1, tree),
        "suffix_attention, closed tree, bf16": partial(suffix, q, k, k, short, 0.1, closed),
        "unified_attention bf16": partial(attention.unified_attention, q, k, k, arena, arena, one, groups, 0.1),
        "unified_attention float32": partial(
            attention.unified_attention, q.float(), k.float(), k.float(), arena.float(), arena.float(), one, groups, 0.1
        ),
        "unified_attention, head 256, window, bf16": partial(
            attention.unified_attention, wide_q, wide_k, wide_k, wide_arena, wide_arena, one, groups, 0.1, None, window
        ),
    }


@contextmanager
def compiling_for(capability: int, compiled: list[Any]) -> Iterator[None]:
    """Launches inside compile for the target and are collected instead of run."""
    launch = KernelInterface.__getitem__
    triton.runtime.driver.set_active(TargetOnly(capability))
    KernelInterface.__getitem__ = lambda kernel, grid: (
        lambda *args, **options: compiled.append(kernel.warmup(*args, grid=grid, **options))
    )
    try:
        yield
    finally:
        KernelInterface.__getitem__ = launch


def compile_case(name: str, launch: Callable[[], Any], capability: int) -> Compiled:
    """Compiles one launch and reads what the assembler made of it."""
    compiled: list[Any] = []
    with compiling_for(capability, compiled):
        launch()
    kernel = compiled[-1]
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(kernel.asm["cubin"])
        file.flush()
        usage = _tool("cuobjdump", "-res-usage", file.name)
        assembly = _tool("nvdisasm", "-c", file.name)
    registers, stack = (int(re.search(rf"{word}:(\d+)", usage)[1]) for word in ("REG", "STACK"))
    return Compiled(
        case=name,
        capability=capability,
        registers=registers,
        shared_bytes=kernel.metadata.shared,
        stack_bytes=stack,
        local_loads_stores=len(re.findall(r"\b(?:LDL|STL)\b", assembly)),
        warps=kernel.metadata.num_warps,
        tensor_core=" ".join(sorted(set(re.findall(r"\b((?:[HQ]G?|UTC[HQ])MMA)\b", assembly)))),
    )


def _tool(name: str, *arguments: str) -> str:
    return subprocess.run([TOOLS / name, *arguments], check=True, capture_output=True, text=True).stdout


def table(results: list[Compiled]) -> str:
    """The Markdown table of docs/kernels.md."""
    lines = [
        "| kernel | capability | registers | shared, KiB | spills | warps | tensor core |",
        "|---|---|---|---|---|---|---|",
    ]
    for r in results:
        shown = f"{r.capability // 10}.{r.capability % 10}"
        spills = r.local_loads_stores or "none"
        cells = (r.case, shown, r.registers, f"{r.shared_bytes / 1024:.1f}", spills, r.warps, r.tensor_core)
        lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines)


def write_table(page: Path, results: list[Compiled]) -> None:
    """Puts the table between the page's markers."""
    start, end = "<!-- compiled: start -->", "<!-- compiled: end -->"
    text = page.read_text()
    before, after = text[: text.index(start) + len(start)], text[text.index(end) :]
    page.write_text(f"{before}\n{table(results)}\n{after}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("capabilities", type=int, nargs="+")
    parser.add_argument("--only", nargs="+", default=[""], help="compile the cases whose name contains one of these")
    parser.add_argument("--write", type=Path, help="page whose table to rewrite")
    options = parser.parse_args()
    results = []
    for capability in options.capabilities:
        for name, launch in cases(capability).items():
            if any(part in name for part in options.only):
                results.append(compile_case(name, launch, capability))
                sys.stdout.write(json.dumps(asdict(results[-1])) + "\n")
                sys.stdout.flush()
    if options.write is not None:
        write_table(options.write, sorted(results, key=lambda result: result.case))


if __name__ == "__main__":
    main()
