"""Each benchmark runs at a small size, and its figures mean what their names say."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace

import polars as pl
import pytest

from benchmarks import host, memory, roofline
from benchmarks.common import Machine, write
from benchmarks.peers.shapes import short_terms
from benchmarks.roofline import BatchShape, Recorder
from quail_frames.runtime.engine import Engine


def test_host_rates_are_those_of_all_items(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DOCUMENTS", "CLASSIFIED", "ANCHORS", "PARTNERS"):
        monkeypatch.setattr(host, name, 40)
    with Engine("oracle", device="null") as engine:
        rates = [measure(engine) for measure in host.MEASURES.values()]
    assert all(rate.wall > 0 for rate in rates)


def test_texts_of_the_memory_benchmark_are_distinct_and_of_the_length_said(tmp_path: Path) -> None:
    mean = memory.write_texts(tmp_path / "texts.parquet", 500)
    texts = pl.read_parquet(tmp_path / "texts.parquet")["text"]
    assert texts.n_unique() == 500
    assert mean == pytest.approx(texts.str.len_chars().mean())
    assert 150 <= mean <= 200


def test_memory_is_the_peak_of_the_query(tmp_path: Path) -> None:
    result = memory.measure(SimpleNamespace(rows=400), tmp_path)
    assert 0 < result.kept < 400
    assert 0 <= result.above_bytes < 1 << 30


def test_products_are_replayed_at_the_batches_of_the_query(tiny: Path) -> None:
    with Engine(str(tiny), dtype="float32") as engine:
        decoder, recorder = engine._model._decoder, Recorder(engine)
        roofline.join_query(engine, 0.2)()
        shapes = recorder.take()
        assert sum(shape.reads for shape in shapes) == 2 * len(short_terms(engine, 60))
        share = roofline.measure(engine, decoder, recorder, roofline.filter_query(engine, 0.05), repeats=1)
    assert recorder.take() == []
    assert 0 < share.share < 1.5
    drawn = roofline.random_inputs(decoder, [BatchShape(7, 1)])
    assert drawn["qkv"].shape == drawn["gate_up"].shape == (7, 32)


def test_json_holds_the_figures_and_the_machine(tmp_path: Path) -> None:
    write(tmp_path / "figures.json", {"ratio": 2.5}, Machine.here())
    found = json.loads((tmp_path / "figures.json").read_text())
    assert found["ratio"] == 2.5
    assert {"cpu", "cores", "vector_unit", "versions", "date"} <= set(found["machine"])
