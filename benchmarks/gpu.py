"""What a GPU does with Qwen3-4B's shapes and random FP8 weights: every kernel, and three queries through the engine.

    python -m benchmarks.gpu --out benchmarks/out/gpu      on a CUDA machine: a short table last, JSON in the folder
    python -m benchmarks.gpu --device cpu                  anywhere: the same code at tiny sizes

`of ceiling` is measured against this card's own copy and matmul rates, `of SoL` against its published peaks.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.gpu_kernels import Ceilings, Timing, measured_ceilings, timings
from benchmarks.gpu_workloads import TINY, Measured, Sizes, measure
from benchmarks.kernel_cases import Shape, cases
from benchmarks.random_model import qwen3_config, random_files, tiny_config
from quail_frames.cost.devices import Device
from quail_frames.kernels import choices
from quail_frames.runtime.device.opening import kernel_place, open_device_files, profile_of
from quail_frames.runtime.engine import Engine


@dataclass(frozen=True)
class Setting:
    """Where and how large: a card with Qwen3-4B, or a CPU with something tiny."""

    place: torch.device
    tiny: bool

    @staticmethod
    def of(device: str) -> Setting:
        """`cuda`, `cuda:N` or `cpu`."""
        return Setting(kernel_place("kernels" if device == "cpu" else device), device == "cpu")

    @property
    def dtype(self) -> torch.dtype:
        return torch.float32 if self.tiny else torch.bfloat16

    @property
    def card(self) -> str:
        if self.tiny:
            return platform.processor() or platform.machine()
        return torch.cuda.get_device_name(self.place)


def machine(setting: Setting) -> dict[str, Any]:
    """Date, card and versions, and which kernels were chosen."""
    try:
        import triton

        version = triton.__version__
    except ModuleNotFoundError:
        version = None
    return {
        "date": time.strftime("%Y-%m-%d %H:%M"),
        "card": setting.card,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "triton": version,
        "python": platform.python_version(),
        "kernels": [str(choice) for choice in choices(setting.place)],
    }


def kernel_timings(setting: Setting, ceilings: Ceilings, until: float) -> Iterator[Timing]:
    """Every case of every kernel, as far as there is time."""
    shape = Shape()
    if setting.tiny:
        small = {"tokens": 64, "contexts": 2, "context_tokens": 16, "ask_tokens": 16, "hidden": 128, "mlp": 256}
        shape = replace(shape, **small, heads=4, kv_heads=2, head_dim=32)
    for case in cases(shape, setting.place):
        if time.monotonic() < until:
            yield from timings(case, setting.place, ceilings, least=0.002 if setting.tiny else 0.1)


def queries(setting: Setting, profile: Device, until: float) -> Iterator[Measured]:
    """The three queries on one engine, as far as there is time."""
    config = tiny_config() if setting.tiny else qwen3_config("4b")
    opened = open_device_files(random_files(config, setting.place), setting.place, setting.dtype)
    shape = opened.shape.in_dtype("fp32" if setting.tiny else "bf16").in_dtype("fp8")
    with Engine(opened, kv_budget=1 << 22 if setting.tiny else None) as engine:
        for measured in measure(engine, shape, profile, TINY if setting.tiny else Sizes()):
            yield measured
            if time.monotonic() > until:
                return


def card_profile(setting: Setting, ceilings: Ceilings) -> Device:
    """Published peaks of the card; a CPU's are those just measured."""
    if not setting.tiny:
        return profile_of(setting.place)
    peaks = {"fp32": ceilings.matmul["bf16"], "bf16": ceilings.matmul["bf16"], "fp8": ceilings.matmul["fp8"]}
    return Device("this CPU", 8e9, ceilings.copy, peaks)  # type: ignore[arg-type]


def measure_all(setting: Setting, out: Path | None, seconds: float) -> list[str]:
    """Kernels, then queries, within about `seconds`; writes gpu.json under `out`, gives the lines of the table."""
    start = time.monotonic()
    record: dict[str, Any] = machine(setting)
    ceilings = measured_ceilings(setting.place)
    profile = card_profile(setting, ceilings)
    kernels = list(kernel_timings(setting, ceilings, start + seconds * 0.4))
    found = list(queries(setting, profile, start + seconds))
    record |= {
        "ceilings": asdict(ceilings),
        "profile": profile.name,
        "kernel_timings": [asdict(timing) for timing in kernels],
        "queries": [{**asdict(query), "of_least": query.of_least, "host_seen": query.host_seen} for query in found],
        "seconds": time.monotonic() - start,
    }
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "gpu.json").write_text(json.dumps(record, indent=1))
    return [*_heading(setting, ceilings), *map(_kernel_line, kernels), "", *_query_lines(found, profile)]


def _heading(setting: Setting, ceilings: Ceilings) -> list[str]:
    peaks = ", ".join(f"{kind} {rate / 1e12:.2f} TFLOP/s" for kind, rate in ceilings.matmul.items())
    return [
        f"{setting.card}, torch {torch.__version__}; measured ceilings: copy {ceilings.copy / 1e9:.0f} GB/s, {peaks}",
        f"{'kernel':<36}{'by':<18}{'us':>10}{'GB/s':>8}{'TFLOP/s':>9}{'of ceiling':>12}",
    ]


def _kernel_line(t: Timing) -> str:
    rates = f"{t.seconds * 1e6:>10.1f}{t.gigabytes_a_second:>8.0f}{t.teraflops:>9.1f}{t.of_ceiling:>12.0%}"
    return f"{t.case:<36}{t.candidate:<18}{rates}"


def _query_lines(found: list[Measured], profile: Device) -> list[str]:
    lines = [
        f"queries, SoL by {profile.name}",
        f"{'query':<16}{'tokens':>10}{'reused':>12}{'s':>8}{'tokens/s':>11}{'of SoL':>8}{'host seen':>11}{'halved':>8}",
    ]
    for q in found:
        rate = q.fresh_tokens / q.seconds
        lines.append(
            f"{q.name:<16}{q.fresh_tokens:>10,}{q.reused_tokens:>12,}{q.seconds:>8.2f}{rate:>11,.0f}"
            f"{q.of_least:>7.2f}x{q.host_seen:>11.0%}{q.halved:>8}"
        )
    return lines


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu (tiny sizes)")
    parser.add_argument("--out", type=Path, help="folder for gpu.json")
    parser.add_argument("--seconds", type=float, default=270.0, help="begin nothing new after so many seconds")
    options = parser.parse_args(arguments)
    print("\n".join(measure_all(Setting.of(options.device), options.out, options.seconds)))


if __name__ == "__main__":
    main()
