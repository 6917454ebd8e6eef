"""The whole engine on the Triton kernels: every operator answers as it does on the kernels' references.

On a GPU the engine runs there; under the interpreter it runs on the CPU, and the quantising operations are torch's,
because the interpreter rounds its cast to e4m3 wrongly.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from quail_frames import kernels
from quail_frames.kernels import dispatch
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.report import RunReport
from tests.kernels.comparison import DEVICE
from tests.support.tiny_engine import PARTS, TERMS, TEXTS, answers, assert_same_answers, save_model

CUDA = DEVICE.type == "cuda"
QUANTISING = ("quantize", "add_rms_norm_quantize", "silu_mul_quantize", "merge_attention_quantize")
TRITON = {"all": "triton"} if CUDA else {"all": "triton", **dict.fromkeys(QUANTISING, "torch")}
TRITON_OF = {False: TRITON, True: TRITON if CUDA else {**TRITON, "qk_norm_rope_write": "torch"}}
"""For the float32 and for the FP8 model; the same kernel takes both, and most of the interpreter's time."""
USED = {
    False: {"add_rms_norm", "silu_mul", "merge_attention"},
    True: {"add_rms_norm_quantize", "silu_mul_quantize", "merge_attention_quantize", "block_scaled_matmul"},
}
COMMON = {"qk_norm_rope_write", "prefix_attention", "suffix_attention", "restricted_head"}
GEMMA: dict[str, Any] = {
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "sliding_window": 24,
    "layer_types": ["sliding_attention", "full_attention"],
    "hidden_size": 96,
    "head_dim": 16,
    "intermediate_size": 96,
}


SMALL: dict[str, Any] = {"num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 32, "intermediate_size": 128}
SIZES: dict[str, Any] = {} if CUDA else SMALL
"""The interpreter's time goes by programs: one for each token and head, and for each tile of a product."""
FEW = TEXTS[1:3]
PIECES: dict[bool, Any] = {
    False: {"parts": ("filters", "inner join"), "texts": [*FEW, FEW[1]], "terms": TERMS[:2]},
    True: {"parts": PARTS if CUDA else ("labels", "semi join"), "texts": FEW, "terms": TERMS[:1]},
}
"""What is asked of the float32 and of the FP8 model: together every operator. The interpreter is slow."""


def run(folder: Path, workload: Any, report: RunReport | None = None, **options: Any) -> dict[str, Any]:
    device = "cuda" if CUDA else "kernels"
    options = {"kv_budget": 1 << 22, "token_budget": 512, **options}
    with Engine(str(folder), device=device, dtype="float32", **options) as engine:
        return answers(engine, report, **workload)


@contextmanager
def launches(monkeypatch: pytest.MonkeyPatch) -> Iterator[set[str]]:
    """Names of the operations whose Triton kernels were asked for."""
    seen: set[str] = set()
    chosen = dispatch._chosen

    def noted(operation: str, *place: Any) -> Any:
        choice, function = chosen(operation, *place)
        if choice.name == "triton":
            seen.add(operation)
        return choice, function

    noted.cache_clear = chosen.cache_clear  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:
        patch.setattr(dispatch, "_chosen", noted)
        yield seen


@pytest.mark.timeout(900)
@pytest.mark.parametrize("fp8", [False, True], ids=["float32", "fp8"])
def test_every_operator_answers_as_on_the_references(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fp8: bool
) -> None:
    folder = save_model(tmp_path / "model", fp8=fp8, **SIZES)
    with kernels.using(all="torch"):
        wanted = run(folder, PIECES[fp8])
    report = RunReport()
    with kernels.using(**TRITON_OF[fp8]), launches(monkeypatch) as seen:
        seen.clear()
        found = run(
            folder, PIECES[fp8], report, kv_budget=1 << 18
        )  # room for a few documents: others are evicted or not kept
    assert {name for name in COMMON | USED[fp8] if TRITON_OF[fp8].get(name) != "torch"} <= seen
    assert report.reused_tokens > 0
    assert_same_answers(found, wanted, 0.02 if fp8 else 1e-4)


@pytest.mark.timeout(900)
def test_windows_and_the_unified_path_answer_alike(tmp_path: Path) -> None:
    folder = save_model(tmp_path / "model", "gemma3_text", **GEMMA)
    workload = {"parts": ("scores",), "texts": FEW}
    with kernels.using(all="torch"):
        wanted = run(folder, workload)
    with kernels.using(**TRITON):
        assert_same_answers(run(folder, workload, attention="unified"), wanted, 1e-4)
