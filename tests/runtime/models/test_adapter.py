"""An adapter changes its base as LoRA is defined, calibrates it, and is refused where it does not fit."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
import torch
from safetensors.torch import load_file, save_file

from quail_frames.errors import ModelError
from quail_frames.plan.calls import AiCall, AiClassify, AiIf, AiScore
from quail_frames.plan.physical import AnswerOutput, Chain
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.adapter_file import PACKAGED, adapter_path
from quail_frames.runtime.models.attention import causal_attention
from quail_frames.runtime.models.decision_head import PREFIX, sizes
from quail_frames.runtime.models.export import huggingface_folder
from quail_frames.runtime.models.load import LoadedModel, load_model

RANK, ALPHA = 3, 7.5
MODULES = [f"self_attn.{x}_proj" for x in "qkvo"] + [f"mlp.{x}_proj" for x in ("gate", "up", "down")]
Tensors = dict[str, torch.Tensor]


@pytest.fixture
def base(make_tiny: Any) -> Path:
    """A tiny random model whose tokenizer has letters behind a space as single tokens, so that it can be asked."""
    folder: Path = make_tiny("llama").folder
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    letters = "TFABCD"
    tokenizer["model"]["vocab"] |= {f"Ġ{letter}": 256 + number for number, letter in enumerate(letters)}
    tokenizer["model"]["merges"] = [["Ġ", letter] for letter in letters]
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    return folder


def write_adapter(path: Path, base: Path, tensors: Tensors, **facts: object) -> Path:
    said = {"base": base, "rank": RANK, "alpha": ALPHA, "pooling": "logsumexp"} | facts
    save_file(tensors, path, metadata={name: str(value) for name, value in said.items()})
    return path


def random_adapter(base: Path) -> Tensors:
    """int8 factors and scales for every matrix of every layer."""
    random = np.random.default_rng(5)
    tensors: Tensors = {}
    for name, weight in load_file(base / "model.safetensors").items():
        module = name.removesuffix(".weight")
        if any(module.endswith(each) for each in MODULES):
            rows, columns = weight.shape
            for part, shape in (("a", (RANK, columns)), ("b", (rows, RANK))):
                levels = random.integers(-127, 128, shape, dtype=np.int8)
                tensors[f"{module}.lora_{part}"] = torch.from_numpy(levels)
                scales = random.uniform(0.0005, 0.001, shape[0]).astype(np.float32)
                tensors[f"{module}.lora_{part}_scale"] = torch.from_numpy(scales)
    return tensors


def random_head(hidden: int) -> Tensors:
    generator = torch.Generator().manual_seed(3)
    parts = sizes(8, hidden).items()
    return {PREFIX + part: torch.randn(size, generator=generator).to(torch.bfloat16) for part, size in parts}


def merged_folder(base: Path, tensors: Tensors, to: Path) -> Path:
    """The base with W + alpha / rank * B A, computed in float64."""
    shutil.copytree(base, to)
    wide: dict[str, npt.NDArray[np.float64]] = {name: tensor.double().numpy() for name, tensor in tensors.items()}
    weights = load_file(base / "model.safetensors")
    for name in list(weights):
        module = name.removesuffix(".weight")
        if f"{module}.lora_a" in tensors:
            a, b = (wide[f"{module}.lora_{x}"] * wide[f"{module}.lora_{x}_scale"][:, None] for x in "ab")
            weights[name] = torch.from_numpy(weights[name].double().numpy() + ALPHA / RANK * (b @ a)).float()
    save_file(weights, to / "model.safetensors")
    return to


def logits_of(model: LoadedModel) -> torch.Tensor:
    tokens = torch.arange(3, 40)
    return model.decoder.logits(model.decoder.hidden(tokens, torch.arange(len(tokens)), causal_attention()))


@pytest.mark.parametrize("architecture", ["llama", "qwen2"])
def test_an_adapted_model_is_its_base_with_the_products_added(
    make_tiny: Any, tmp_path: Path, architecture: str
) -> None:
    base = make_tiny(architecture).folder
    tensors = random_adapter(base)
    adapted = load_model(write_adapter(tmp_path / "own.safetensors", base, tensors), dtype="float32")
    merged = load_model(merged_folder(base, tensors, tmp_path / "merged"), dtype="float32")
    plain = load_model(base, dtype="float32")
    torch.testing.assert_close(logits_of(adapted), logits_of(merged), rtol=1e-4, atol=1e-4)
    assert (logits_of(adapted) - logits_of(plain)).abs().max() > 0.1
    assert adapted.head is None and adapted.spec.pooling == "logsumexp"


def test_identity_includes_the_adapter_and_its_calibration(base: Path, tmp_path: Path) -> None:
    tensors = random_adapter(base)
    changed = {name: tensor.clone() for name, tensor in tensors.items()}
    changed["model.layers.1.mlp.up_proj.lora_b"][7, 1] += 1
    files = [
        write_adapter(tmp_path / "a.safetensors", base, tensors),
        write_adapter(tmp_path / "b.safetensors", base, tensors),
        write_adapter(tmp_path / "c.safetensors", base, changed),
        write_adapter(tmp_path / "d.safetensors", base, tensors, temperature=2.0),
        write_adapter(tmp_path / "e.safetensors", base, tensors | random_head(48)),
    ]
    found = [load_model(file).identity for file in files]
    assert found[0] == found[1]
    assert len({load_model(base).identity, *found}) == 5


TEXTS = ["a cat", "two dogs bark at night", "", "a fish in the sea", "no animal", "an owl"]
LABELS = ("cat", "dog", "fish", "owl")


def asked(model: Path, *calls: AiCall) -> list[list[Any]]:
    with Engine(str(model), dtype="float32") as engine:
        planned = tuple(engine.resolve(call, (0,)) for call in calls)
        outputs = tuple(AnswerOutput(str(number), number) for number in range(len(calls)))
        plan = Chain(("text",), (), planned, tuple(range(len(calls))), None, outputs)
        batches = engine.run(plan, [pa.record_batch([pa.array(TEXTS)], names=["text"])])
        return [column.to_pylist() for column in pa.Table.from_batches(batches).columns[1:]]


def test_scores_and_the_filters_threshold_are_calibrated(base: Path, tmp_path: Path) -> None:
    tensors = random_adapter(base)
    question = Template(("Is it about a pet? ", Slot(0)))
    calls = AiScore(question, ("text",)), AiIf(question, ("text",))
    plain, _ = asked(write_adapter(tmp_path / "plain.safetensors", base, tensors), *calls)
    margins = np.log(plain) - np.log1p(-np.array(plain))
    bias = -float(np.median(margins)) / 2.5
    own = write_adapter(tmp_path / "own.safetensors", base, tensors, temperature=2.5, bias=bias)
    scores, passed = asked(own, *calls)
    np.testing.assert_allclose(scores, 1 / (1 + np.exp(-(margins / 2.5 + bias))), atol=1e-5)
    assert passed == [score > 0.5 for score in scores]
    assert set(passed) == {True, False}


@pytest.mark.parametrize("scoring", ["letters", "decision_choice"])
def test_probabilities_of_labels_are_calibrated(base: Path, tmp_path: Path, scoring: Any) -> None:
    tensors = random_adapter(base) | random_head(48)
    call = AiClassify(Template((Slot(0),)), ("text",), labels=LABELS, scoring=scoring, probabilities=True)
    (plain,) = asked(write_adapter(tmp_path / "plain.safetensors", base, tensors), call)
    temperatures = {"choice_temperature": 3.0, "letters_temperature": 3.0}
    (soft,) = asked(write_adapter(tmp_path / "soft.safetensors", base, tensors, **temperatures), call)
    for before, after in zip(plain, soft, strict=True):
        weights = np.array(list(before["probabilities"].values())) ** (1 / 3)
        np.testing.assert_allclose(list(after["probabilities"].values()), weights / weights.sum(), atol=1e-4)
        assert after["label"] == before["label"]


def test_an_adapter_says_what_auto_label_scoring_means(base: Path, tmp_path: Path) -> None:
    tensors = random_adapter(base) | random_head(48)
    own = write_adapter(tmp_path / "own.safetensors", base, tensors, label_scoring="decision_choice")
    with Engine(str(own)) as engine:
        planned = engine.resolve(AiClassify(Template((Slot(0),)), ("text",), labels=LABELS), (0,))
    assert planned.scoring == "decision_choice"


def test_a_file_that_does_not_fit_is_named(base: Path, tmp_path: Path) -> None:
    tensors = random_adapter(base)
    save_file(tensors, tmp_path / "bare.safetensors")
    with pytest.raises(ModelError, match="does not say its base, so it is no adapter"):
        load_model(tmp_path / "bare.safetensors")
    narrow = tensors | {"model.layers.0.mlp.up_proj.lora_b": torch.zeros(9, RANK, dtype=torch.int8)}
    with pytest.raises(
        ModelError, match=r"'model.layers.0.mlp.up_proj.weight'.*\(9, 3\).*needs \(3, 48\) and \(80, 3\)"
    ):
        load_model(write_adapter(tmp_path / "narrow.safetensors", base, narrow))
    deep = {name.replace("layers.2", "layers.7"): tensor for name, tensor in tensors.items()}
    with pytest.raises(ModelError, match=r"changes 'model.layers.7.*which its base .* has not"):
        load_model(write_adapter(tmp_path / "deep.safetensors", base, deep))
    (tmp_path / "broken.safetensors").write_bytes(b"nothing")
    with pytest.raises(ModelError, match="is not a readable safetensors file"):
        load_model(tmp_path / "broken.safetensors")
    with pytest.raises(ModelError, match="No model '/nowhere'"):
        load_model(write_adapter(tmp_path / "lost.safetensors", Path("/nowhere"), tensors))


def test_names_that_stand_for_adapters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "own.safetensors"
    file.touch()
    assert adapter_path(file) == file == adapter_path(str(file))
    assert adapter_path("smollm2-135m") is None and adapter_path(tmp_path) is None
    monkeypatch.setitem(PACKAGED, "ours", file)
    assert adapter_path("ours") == file
    file.unlink()
    with pytest.raises(ModelError, match=r"'ours' lacks its file .*Install quail-frames again"):
        adapter_path("ours")


def test_an_adapter_is_exported_as_a_folder_with_its_changes_and_its_calibration(
    base: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("QUAIL_FRAMES_CACHE", str(tmp_path / "cache"))
    tensors = random_adapter(base) | random_head(48)
    own = write_adapter(tmp_path / "own.safetensors", base, tensors, bias=0.25, label_scoring="decision_choice")
    folder = huggingface_folder(str(own))
    adapted, exported = load_model(own, dtype="float32"), load_model(folder, dtype="float32")
    torch.testing.assert_close(logits_of(exported), logits_of(adapted), rtol=1e-5, atol=1e-5)
    assert exported.spec == adapted.spec and exported.spec.bias == 0.25
    assert adapted.head is not None and exported.head is None, "other engines do not know a decision head"
    call = AiClassify(Template((Slot(0),)), ("text",), labels=LABELS)
    with Engine(str(folder)) as engine:
        assert engine.resolve(call, (0,)).scoring != "decision_choice", "auto is another scoring without a head"
    written = (folder / "model.safetensors").stat().st_mtime_ns
    assert huggingface_folder(str(own)) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written, "it is written once"
    assert huggingface_folder(str(base)) == base, "a folder is its own export"
