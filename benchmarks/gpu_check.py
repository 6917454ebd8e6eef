"""Everything that only a CUDA machine can prove, in one run of at most eight minutes.

    make gpu-check PYTHON=python3                          or: python3 -m benchmarks.gpu_check --out FOLDER
    python -m benchmarks.gpu_check --device cpu            the script itself, tiny, where there is no GPU

Kernel tests against their references, parity of a Qwen3-4B-shaped FP8 model with the torch reference, then the figures
of `benchmarks.gpu`. Needs torch, triton, numpy, pyarrow, transformers and pytest; tests that need hypothesis are left
out where it is missing. Exits with 1 where a check failed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import torch

from benchmarks.checking import timed
from benchmarks.gpu import Setting, measure_all
from benchmarks.gpu_workloads import TINY, Sizes, filters, join, labels, texts
from benchmarks.random_model import qwen3_config, random_files, tiny_config
from quail_frames import kernels
from quail_frames.runtime.batch import Batch, Float32
from quail_frames.runtime.device.decoder import KernelDecoder
from quail_frames.runtime.device.model import DeviceModel
from quail_frames.runtime.device.opening import open_device_files
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.decoder import Decoder
from quail_frames.runtime.models.weights import assemble, assemble_scaled
from quail_frames.runtime.torch_model import TorchModel

ROOT = Path(__file__).parents[1]
TESTS = "tests/kernels/on_device"
TOTAL, TESTING = 440.0, 150.0
"""Seconds of the whole run and of its kernel tests; the figures take what is left."""
LAYERS = 4
CHECKED = Sizes(documents=12, document=200, anchors=1, anchor=800, partners=20, partner=24, texts=16, text=60)
SAME_ARITHMETIC, EXPANDED = 0.02, 0.25
"""Most that logits may differ, root mean square over the spread of the logits: from references that round as the
kernels do, and from expanded weights whose activations are not rounded to FP8."""


def kernel_tests(tiny: bool) -> tuple[bool, str]:
    """The tests of `tests/kernels/on_device`; on a CPU one of them, by Triton's interpreter."""
    chosen = [f"{TESTS}/test_model_shapes.py", "-k", "head"] if tiny else [TESTS]
    # The repository's pytest settings need plugins that a GPU machine may lack.
    settings = ["-o", "addopts=", "-o", "filterwarnings=default", "--import-mode=importlib", "-p", "no:cacheprovider"]
    settings += ["--confcutdir", str(ROOT / TESTS)]
    command = [sys.executable, "-m", "pytest", "-q", "--no-header", *settings, *chosen]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **({"TRITON_INTERPRET": "1"} if tiny else {})}
    run = subprocess.run(
        command,
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=None if tiny else TESTING,
    )
    last = (run.stdout.strip().splitlines() or [run.stderr.strip()[-200:]])[-1]
    if run.returncode:
        print(run.stdout[-6000:] + run.stderr[-2000:])
    return run.returncode == 0, last.strip("= ")


class Recorder:
    """A model that notes every batch with its logits, also where the engine would take answers."""

    def __init__(self, model: DeviceModel) -> None:
        self._model = model
        self.batches: list[tuple[Batch, list[Float32]]] = []

    def run(self, batch: Batch) -> list[Float32]:
        reads = tuple(replace(read, readout=replace(read.readout, answer=None)) for read in batch.reads)
        batch = replace(batch, reads=reads)
        logits = self._model.run(batch)
        self.batches.append((batch, logits))
        return logits

    def clock(self) -> float:
        return self._model.clock()


@dataclass(frozen=True)
class Recorded:
    """What the engine asked of the model under test, and its logits; `pages` is the size of the arena."""

    setting: Setting
    batches: list[tuple[Batch, list[Float32]]]
    pages: int


def record(setting: Setting) -> Recorded:
    """Filters, a join and a classification through the engine on a few layers."""
    sizes = TINY if setting.tiny else CHECKED
    opened = open_device_files(_files(setting), setting.place, setting.dtype)
    with Engine(opened, kv_budget=1 << 22 if setting.tiny else 1 << 28, token_budget=None) as engine:
        recorder = engine._scheduler._model = Recorder(opened.model)  # type: ignore[arg-type, assignment]
        filters(engine, texts(1, sizes.documents, sizes.document))
        join(engine, texts(2, sizes.anchors, sizes.anchor), texts(3, sizes.partners, sizes.partner))
        labels(engine, texts(4, sizes.texts, sizes.text))
        return Recorded(setting, recorder.batches, engine.memory.pages)


def _files(setting: Setting):  # type: ignore[no-untyped-def]
    return random_files(tiny_config() if setting.tiny else qwen3_config("4b", LAYERS), setting.place)


def against_references(recorded: Recorded) -> tuple[bool, str]:
    """The same batches by the kernels' torch references on the same device."""
    setting, files = recorded.setting, _files(recorded.setting)
    weights = assemble_scaled(files.config, files.source, setting.place, setting.dtype)
    with kernels.using(all="torch"):
        return _compared(recorded, DeviceModel(KernelDecoder(files.config, weights)), SAME_ARITHMETIC)


def against_expanded_weights(recorded: Recorded) -> tuple[bool, str]:
    """The same batches by the CPU's torch decoder in float32 with expanded weights."""
    files = _files(recorded.setting)
    weights = assemble(files.config, files.source, torch.device("cpu"), torch.float32)
    return _compared(recorded, TorchModel(Decoder(files.config, weights)), EXPANDED)


def _compared(recorded: Recorded, model: DeviceModel | TorchModel, most: float) -> tuple[bool, str]:
    model.reserve(recorded.pages)
    pairs = [(own, other) for batch, answers in recorded.batches
             for own, other in zip(answers, model.run(batch), strict=True)]  # fmt: skip
    found, wanted = (np.concatenate([pair[side].reshape(-1) for pair in pairs]) for side in (0, 1))
    error = float(np.sqrt(np.mean((found - wanted) ** 2)) / wanted.std())
    same = np.mean([np.mean(own.argmax(axis=1) == other.argmax(axis=1)) for own, other in pairs])
    text = f"{len(found):,} logits differ by {error:.4f} of their spread (at most {most}); best token same: {same:.2%}"
    return bool(np.isfinite(found).all() and error <= most), text


def check(device: str, out: Path | None) -> int:
    """All of it; gives the exit status."""
    start = time.monotonic()
    setting = Setting.of(device)
    checks = [timed("kernel tests", lambda: kernel_tests(setting.tiny))]
    kept: list[Recorded] = []

    def recording() -> tuple[bool, str]:
        kept.append(record(setting))
        return True, f"{sum(len(batch) for batch, _ in kept[0].batches):,} tokens in {len(kept[0].batches)} batches"

    checks.append(timed("the engine runs a Qwen3-shaped FP8 model", recording))
    if kept:
        checks.append(timed("parity with the kernels' references", lambda: against_references(kept[0])))
        checks.append(timed("parity with expanded weights on the CPU", lambda: against_expanded_weights(kept[0])))
    table: list[str] = []

    def figures() -> tuple[bool, str]:
        table.extend(measure_all(setting, out, TOTAL - (time.monotonic() - start)))
        return True, "below"

    checks.append(timed("figures", figures))
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "checks.json").write_text(json.dumps([asdict(one) for one in checks], indent=1))
    print("\n".join(["", *table, "", *map(str, checks)]))
    return 0 if all(one.passed for one in checks) else 1


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", help="cuda, cuda:N, or cpu (tiny sizes)")
    parser.add_argument("--out", type=Path, help="folder for checks.json and gpu.json")
    options = parser.parse_args(arguments)
    return check(options.device, options.out)


if __name__ == "__main__":
    sys.exit(main())
