"""The GPU's code, run on the CPU by the kernels' references, answers as the CPU's own code does, every operator."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
import torch

from quail_frames.errors import DeviceMemoryError, ModelError
from quail_frames.plan.calls import AiClassify
from quail_frames.plan.physical import AnswerOutput, Chain
from quail_frames.runtime.device.decoder import KernelDecoder
from quail_frames.runtime.device.model import DeviceModel
from quail_frames.runtime.device.opening import device_budgets, open_device_model
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.weights import BlockScaled
from quail_frames.runtime.report import RunReport
from tests.support.tiny_engine import (
    LABELS,
    SHAPE,
    TEXTS,
    about,
    answers,
    assert_same_answers,
    one_column,
    save_model,
)

GEMMA = {"sliding_window": 24, "layer_types": ["sliding_attention", "full_attention"], "query_pre_attn_scalar": 32}
MODELS: dict[str, tuple[str, dict[str, Any]]] = {
    "qwen3": ("qwen3", {}),
    "qwen2, biases": ("qwen2", {"head_dim": 24, "hidden_size": 96}),
    "gemma3": ("gemma3_text", GEMMA),
    "smollm3": ("smollm3", {"no_rope_layers": [1, 0], "head_dim": 24, "hidden_size": 96}),
}
ROOMY, TIGHT = 1 << 22, 1 << 18


def run(folder: Path, device: str, report: RunReport | None = None, **options: Any) -> dict[str, Any]:
    with Engine(str(folder), device=device, dtype="float32", **{"kv_budget": ROOMY, **options}) as engine:
        return answers(engine, report)


@pytest.mark.parametrize("model", MODELS)
def test_every_operator_answers_as_on_the_cpu(tmp_path: Path, model: str) -> None:
    architecture, options = MODELS[model]
    folder = save_model(tmp_path / "model", architecture, **options)
    wanted = run(folder, "cpu")
    assert_same_answers(run(folder, "kernels"), wanted, 1e-4)
    scores = np.array([row["a"] for row in wanted["scores"]])
    assert scores.std() > 1e-3, "the scores tell nothing apart"


def test_one_number_an_answer_leaves_the_device_where_one_says_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, shapes = save_model(tmp_path / "model"), Counter[tuple[str, int]]()
    read = DeviceModel._read

    def noted(self: DeviceModel, hidden: Any, ids: Any, plan: Any) -> Any:
        found = read(self, hidden, ids, plan)
        for part, (_, spec) in zip(found, plan.reads, strict=True):
            shapes[type(spec.answer).__name__, part.shape[1]] += 1
        return found

    monkeypatch.setattr(DeviceModel, "_read", noted)
    found, wanted = run(folder, "kernels"), run(folder, "cpu")
    assert_same_answers(found, wanted, 1e-4)
    assert {width for kind, width in shapes if kind == "TrueFalseMargin"} == {1}
    assert any(kind == "NoneType" and width > 1 for kind, width in shapes), "probabilities need every label's logit"
    shapes.clear()
    call = AiClassify(about("What?"), ("t",), labels=LABELS, scoring="letters")
    plan = Chain(("t",), (), (one_column(call, "letters"),), (0,), None, (AnswerOutput("label", 0),))
    rows = pa.record_batch([pa.array(TEXTS)], names=["t"])
    labels = []
    for device in ("kernels", "cpu"):
        with Engine(str(folder), device=device, dtype="float32", kv_budget=ROOMY) as engine:
            labels.append([row for batch in engine.run(plan, [rows]) for row in batch["label"].to_pylist()])
    assert labels[0] == labels[1]
    assert set(shapes) == {("BestColumn", 1)}


def test_an_engine_holds_its_operations_to_what_it_was_told(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model")
    assert run(folder, "kernels", kernels={"all": "torch"}) == run(folder, "kernels", kernels="torch")
    for told, message in [
        ({"kernels": "triton"}, "is pinned to 'triton', which cannot run on cpu"),
        ({"kernels": "restricted_head=cublas"}, "kernels=: restricted_head has no candidate 'cublas'"),
        ({"kernels": ""}, "kernels='': give a str"),
        ({"kernels": "torch", "device": "cpu"}, "has no effect on device='cpu'"),
    ]:
        with pytest.raises(ModelError, match=message):
            run(folder, **{"device": "kernels", **told})  # type: ignore[arg-type]


@pytest.fixture(scope="module")
def fp8_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(tmp_path_factory.mktemp("fp8") / "model", fp8=True)


def test_fp8_weights_stay_fp8_and_answers_differ_by_the_rounding_of_activations_alone(fp8_folder: Path) -> None:
    opened = open_device_model(str(fp8_folder), device="kernels", dtype="float32")
    decoder: KernelDecoder = opened.model._decoder  # type: ignore[attr-defined]
    assert all(isinstance(getattr(layer, name), BlockScaled) for layer in decoder.weights.layers
               for name in ("qkv", "output", "gate_up", "down"))  # fmt: skip
    found, wanted = run(fp8_folder, "kernels"), run(fp8_folder, "cpu")
    for name in ("a", "b"):
        scores, exact = (np.array([row[name] for row in way["scores"]]) for way in (found, wanted))
        np.testing.assert_allclose(scores, exact, atol=0.1)


@pytest.mark.parametrize("options", [
    {"attention": "unified"}, {"token_budget": 64}, {"kv_budget": TIGHT}, {"kv_budget": 0}, {"token_budget": 1}
], ids=str)  # fmt: skip
def test_batches_memory_and_attention_path_change_no_answer(fp8_folder: Path, options: dict[str, Any]) -> None:
    report = RunReport()
    wanted = run(fp8_folder, "kernels", report)
    assert report.reused_tokens > 0
    assert_same_answers(run(fp8_folder, "kernels", **options), wanted, 0.02)


def test_documents_that_begin_alike_share_what_is_computed(fp8_folder: Path) -> None:
    shared, alone = RunReport(), RunReport()
    run(fp8_folder, "kernels", shared)
    run(fp8_folder, "kernels", alone, kv_budget=0)
    assert shared.fresh_tokens < alone.fresh_tokens - 3 * len(TEXTS[0].split())


def failing_above(monkeypatch: pytest.MonkeyPatch, tokens: int) -> list[int]:
    """Lets the decoder run out of memory on batches of more tokens; gives the sizes that it was asked for."""
    hidden, sizes = KernelDecoder.hidden, []

    def limited(self: KernelDecoder, ids: torch.Tensor, *rest: Any) -> torch.Tensor:
        sizes.append(len(ids))
        if len(ids) > tokens:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")
        return hidden(self, ids, *rest)

    monkeypatch.setattr(KernelDecoder, "hidden", limited)
    return sizes


def test_a_batch_that_does_not_fit_is_halved_and_counted(fp8_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = run(fp8_folder, "kernels")
    sizes = failing_above(monkeypatch, 90)
    report = RunReport()
    with Engine(str(fp8_folder), device="kernels", dtype="float32", kv_budget=ROOMY, token_budget=400) as engine:
        assert_same_answers(answers(engine, report), wanted, 0.02)
        assert report.halved >= 1 and "halved" in str(report)
        assert max(sizes) > 90
        sizes.clear()
        report = RunReport()
        assert_same_answers(answers(engine, report), wanted, 0.02)
        assert max(sizes) <= 100 and report.halved == 0, "later batches are smaller from the start"


def test_a_prompt_that_does_not_fit_alone_is_an_error(fp8_folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failing_above(monkeypatch, 3)
    with pytest.raises(DeviceMemoryError, match=r"prompt of .* tokens does not fit.*smaller kv_budget or max_length"):
        run(fp8_folder, "kernels")


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
@pytest.mark.parametrize("device", ["cuda", "cuda:1"])
def test_without_a_gpu_the_error_says_what_to_use(device: str) -> None:
    with pytest.raises(ModelError, match=rf"'{device}'.*finds no CUDA device.*device='cpu'"):
        Engine("smollm2-135m", device=device)


def test_budgets_of_a_card_follow_from_what_is_free() -> None:
    from quail_frames.cost.devices import DEVICES
    from quail_frames.cost.shapes import shape

    model, card = shape("qwen3-4b-fp8"), DEVICES["h100-sxm"]
    room = device_budgets(model, card, free=70e9, reserved=5e9, weights=4.8e9)
    assert room.tokens > 10_000
    used = room.kv_bytes + room.activation_bytes + room.weight_bytes
    assert 0.9 * 75e9 < used <= 0.95 * 75e9
    with pytest.raises(ModelError, match="does not fit"):
        device_budgets(model, card, free=1e8, reserved=4.8e9, weights=4.8e9)


def test_the_shape_of_the_tiny_model_has_whole_and_partial_blocks() -> None:
    assert SHAPE["hidden_size"] % 128 and SHAPE["intermediate_size"] % 128 == 0
