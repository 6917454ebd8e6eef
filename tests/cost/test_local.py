"""The machine at hand is measured once, and its peaks are kept."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from quail_frames.cost.choices import Target
from quail_frames.cost.cpu import cpu_model
from quail_frames.cost.local import kept_device, local_device, machine_memory, measured
from quail_frames.cost.shapes import shape
from quail_frames.cost.work import prefill

torch = pytest.importorskip("torch")

SMALL = shape("smollm2-135m-fp32")


def test_peaks_are_measured_once_and_kept(tmp_path: Path) -> None:
    first = measured(SMALL, folder=tmp_path)
    assert 1e9 < first.flops < 1e15
    assert 1e8 < first.bandwidth < 1e13
    (kept,) = tmp_path.glob("*.json")
    written = json.loads(kept.read_text())
    assert cpu_model() in written["key"]
    assert f"torch {torch.__version__}" in written["key"]
    assert f"{torch.get_num_threads()} threads | fp32" in written["key"]
    kept.write_text(json.dumps({**written, "flops": 1.0}))
    assert measured(SMALL, folder=tmp_path).flops == 1.0
    assert measured(SMALL, folder=tmp_path, fresh=True).flops > 1e9


def test_what_was_measured_before_is_found_without_measuring(tmp_path: Path) -> None:
    assert kept_device(SMALL, tmp_path) is None
    measured(SMALL, folder=tmp_path)
    assert kept_device(SMALL, tmp_path) == local_device(SMALL, folder=tmp_path)
    assert kept_device(shape("qwen3-0.6b"), tmp_path) is None


def test_the_local_device_prices_a_plan(tmp_path: Path) -> None:
    device = local_device(SMALL, price_per_hour=0.5, folder=tmp_path)
    assert device.memory_bytes == machine_memory()
    target = Target.of(SMALL, device)
    assert target.price(prefill(1000)).seconds > 1000 * SMALL.flops_per_token / device.peak("fp32")
    assert device.price(7200) == 1.0
