"""A simulated device runs a plan without its hardware; its clock agrees with the cost model."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from quail_frames.cost.devices import device
from quail_frames.cost.roofline import roofline
from quail_frames.cost.shapes import shape
from quail_frames.cost.work import prefill
from quail_frames.errors import ModelError
from quail_frames.plan.calls import AiIf
from quail_frames.plan.physical import AnswerOutput, Chain
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.report import RunReport

GOOD = AiIf(Template(("Is it good?\n", Slot(0))), ("text",))


def test_the_clock_advances_by_the_roofline_of_what_was_asked() -> None:
    letters = np.random.default_rng(0).integers(97, 123, (200, 300), dtype=np.uint8)
    texts = [bytes(row).decode() for row in letters]
    with Engine("qwen3-4b-fp8", device="simulated:h100-sxm") as engine:
        plan = Chain(("text",), (), (engine.resolve(GOOD, (0,)),), (0,), None, (AnswerOutput("good", 0),))
        report = RunReport()
        list(engine.run(plan, [pa.record_batch([pa.array(texts)], names=["text"])], report))
        prompt = 300 + engine.compile(plan.calls[0]).prompt.own_tokens
    model, place = shape("qwen3-4b-fp8"), device("h100-sxm")
    least = roofline(prefill(np.full(200, prompt)), model, place, report.batches).seconds
    assert report.fresh_tokens == 200 * prompt
    assert report.device_seconds == pytest.approx(least, rel=0.02)


def test_an_unknown_model_or_device_is_named() -> None:
    with pytest.raises(ModelError, match="qwen3-5b"):
        Engine("qwen3-5b", device="simulated:h100-sxm")
    with pytest.raises(Exception, match="h1000"):
        Engine("qwen3-4b", device="simulated:h1000")


def test_a_gpu_that_is_not_there_is_refused_with_advice() -> None:
    with pytest.raises(ModelError, match="finds no CUDA device here"):
        Engine("smollm2-135m", device="cuda")
