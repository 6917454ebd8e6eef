"""Times every kernel beside its rivals and its roofline, at Qwen3-4B shapes.

    python -m benchmarks.gpu_kernels                            on a CUDA machine: table, and JSON under --out
    python -m benchmarks.gpu_kernels --tokens 64 --contexts 2   anywhere: the same code on tiny batches
    python -m benchmarks.gpu_kernels --paper h100 --write docs/kernels.md    traffic and roofline on paper, no GPU

Needs torch and, on CUDA, triton. `of ceiling` is measured against this machine's own copy and matmul rates.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import torch

from benchmarks.kernel_cases import Case, Shape, cases
from quail_frames.cost.devices import device as profile
from quail_frames.kernels.dispatch import OPERATIONS, choices, using


@dataclass(frozen=True)
class Ceilings:
    """What the machine reaches at its best: bytes/s of a copy, FLOP/s of a large matmul of each type."""

    copy: float
    matmul: dict[str, float]

    def seconds(self, case: Case) -> tuple[float, str]:
        """The roofline of a case and what bounds it."""
        memory = case.bytes / self.copy
        compute = case.flops / self.matmul[case.arithmetic] if case.arithmetic else 0.0
        return max(memory, compute), "memory" if memory >= compute else "compute"


@dataclass(frozen=True)
class Timing:
    """One candidate on one case."""

    case: str
    candidate: str
    seconds: float
    gigabytes_a_second: float
    teraflops: float
    of_ceiling: float
    bound: str


def published(name: str) -> Ceilings:
    """Ceilings by the vendor's figures."""
    device = profile(name)
    return Ceilings(device.bandwidth, {"bf16": device.peak("bf16"), "fp8": device.peak("fp8")})


def seconds_of(run: Callable[[], object], device: torch.device, least: float = 0.2) -> float:
    """Median seconds of a call, warm, over at least `least` seconds of calls."""
    for _ in range(3):
        run()
    times: list[float] = []
    while sum(times) < least or len(times) < 5:
        if device.type == "cuda":
            start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            start.record()
            run()
            end.record()
            torch.cuda.synchronize(device)
            times.append(start.elapsed_time(end) / 1e3)
        else:
            begin = time.perf_counter()
            run()
            times.append(time.perf_counter() - begin)
    return sorted(times)[len(times) // 2]


def measured_ceilings(device: torch.device) -> Ceilings:
    """A copy of 1 GiB and square matmuls of 8192 (tiny ones on a CPU)."""
    cuda = device.type == "cuda"
    source = torch.empty(2**29 if cuda else 2**22, dtype=torch.bfloat16, device=device)
    target = torch.empty_like(source)
    copy = 2 * source.nbytes / seconds_of(lambda: target.copy_(source), device)
    side = 8192 if cuda else 256
    a = torch.randn(side, side, device=device).to(torch.bfloat16 if cuda else torch.float32)
    bf16 = 2 * side**3 / seconds_of(lambda: a @ a, device)
    fp8 = bf16
    if cuda and torch.cuda.get_device_capability(device) >= (8, 9):
        a8, one = a.to(torch.float8_e4m3fn), torch.ones((), device=device)
        fp8 = (
            2
            * side**3
            / seconds_of(
                lambda: torch._scaled_mm(a8, a8.t(), scale_a=one, scale_b=one, out_dtype=torch.bfloat16), device
            )
        )
    return Ceilings(copy, {"bf16": bf16, "fp8": fp8})


def timings(case: Case, device: torch.device, ceilings: Ceilings, least: float = 0.2) -> list[Timing]:
    """Every candidate of the case's operation that can run here."""
    found = []
    limit, bound = ceilings.seconds(case)
    for candidate in OPERATIONS[case.operation]:
        if device.type == "cuda" and candidate.name == "torch" and case.operation.endswith("attention"):
            continue  # the reference loops over groups; it is there to be right
        with using(**{case.operation: candidate.name}):
            try:
                seconds = seconds_of(case.run, device, least)
            except ValueError as reason:  # dispatch says why this candidate cannot run here
                sys.stderr.write(f"left out: {reason}\n")
                continue
        found.append(
            Timing(
                case.name,
                candidate.name,
                seconds,
                case.bytes / seconds / 1e9,
                case.flops / seconds / 1e12,
                limit / seconds,
                bound,
            )
        )
    return found


def paper_table(shape: Shape, name: str) -> str:
    """Traffic, arithmetic and least time of every case, in Markdown."""
    ceilings = published(name)
    lines = ["| kernel | MB moved | GFLOP | FLOP/byte | least time, us | bound by |", "|---|---|---|---|---|---|"]
    for case in cases(shape, torch.device("meta")):
        seconds, bound = ceilings.seconds(case)
        cells = (f"{case.bytes / 1e6:.1f}", f"{case.flops / 1e9:.1f}", f"{case.flops / case.bytes:.0f}")
        lines.append(f"| {case.name} | {' | '.join(cells)} | {seconds * 1e6:.1f} | {bound} |")
    return "\n".join(lines)


def write_between(page: Path, name: str, content: str) -> None:
    """Puts `content` between the page's `<!-- name: start -->` and `<!-- name: end -->`."""
    start, end = f"<!-- {name}: start -->", f"<!-- {name}: end -->"
    text = page.read_text()
    page.write_text(f"{text[: text.index(start) + len(start)]}\n{content}\n{text[text.index(end) :]}")


def report(shape: Shape, out: Path | None) -> None:
    """Measures everything here; prints the table last and writes JSON under `out`."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    card = torch.cuda.get_device_name(device) if device.type == "cuda" else platform.processor() or platform.machine()
    for choice in choices(device):
        print(choice)
    ceilings = measured_ceilings(device)
    found = [timing for case in cases(shape, device) for timing in timings(case, device, ceilings)]
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        record = {
            "date": time.strftime("%Y-%m-%d"),
            "card": card,
            "torch": torch.__version__,
            "shape": asdict(shape),
            "ceilings": asdict(ceilings),
            "timings": [asdict(timing) for timing in found],
        }
        (out / "gpu_kernels.json").write_text(json.dumps(record, indent=1))
    peaks = ", ".join(f"{kind} {rate / 1e12:.2f} TFLOP/s" for kind, rate in ceilings.matmul.items())
    print(f"\n{card}, torch {torch.__version__}; measured ceilings: copy {ceilings.copy / 1e9:.0f} GB/s, {peaks}")
    print(f"{'kernel':<44}{'by':<20}{'us':>10}{'GB/s':>9}{'TFLOP/s':>9}{'of ceiling':>12}")
    for t in found:
        rates = f"{t.seconds * 1e6:>10.1f}{t.gigabytes_a_second:>9.0f}{t.teraflops:>9.1f}{t.of_ceiling:>11.0%}"
        print(f"{t.case:<44}{t.candidate:<20}{rates}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokens", type=int, default=16384, help="tokens of a batch")
    parser.add_argument("--contexts", type=int, default=8, help="contexts that the batch's asks share")
    parser.add_argument("--context-tokens", type=int, help="tokens of a context (a quarter of the batch unless given)")
    parser.add_argument("--paper", metavar="DEVICE", help="print traffic and roofline by published figures")
    parser.add_argument("--write", type=Path, help="with --paper: the page whose table to rewrite")
    parser.add_argument("--out", type=Path, help="folder for the JSON record")
    options = parser.parse_args()
    shape = Shape(tokens=options.tokens, contexts=options.contexts)
    shape = replace(shape, context_tokens=options.context_tokens or max(options.tokens // 4, 1))
    if options.paper is None:
        report(shape, options.out)
    elif options.write is None:
        print(paper_table(shape, options.paper))
    else:
        write_between(options.write, "paper", paper_table(shape, options.paper))


if __name__ == "__main__":
    main()
