"""Loading by name: what is read, what identifies it, and how a broken folder is named."""

from __future__ import annotations

import gc
import re
import sys
import threading
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from quail_frames.errors import ModelError
from quail_frames.runtime.models.load import LoadedModel, load_model, resolve_dtype
from quail_frames.runtime.models.safetensors import SafetensorsFolder
from quail_frames.runtime.models.weights import assemble

CPU = torch.device("cpu")


def change(file: Path, **tensors: torch.Tensor | None) -> None:
    """Rewrites a safetensors file: `name=None` drops a tensor; `__` in a name stands for a dot."""
    content = load_file(file)
    content.update({name.replace("__", "."): tensor for name, tensor in tensors.items()})
    save_file({name: tensor for name, tensor in content.items() if tensor is not None}, file)


@pytest.fixture
def folder(make_tiny: Any) -> Path:
    tiny: Path = make_tiny("llama").folder
    return tiny


def test_the_default_model_is_ready_to_run(default_model: LoadedModel) -> None:
    spec = default_model.spec
    assert default_model.name == "smollm2-135m" and default_model.decoder.dtype == torch.float32
    assert (spec.context_length, spec.bos_id, spec.before_preamble, spec.after_cue) == (8192, None, "", "")
    assert (spec.pooling, spec.temperature, spec.bias) == ("max", 1.0, 0.0)


def test_auto_is_a_dtype_that_this_device_computes_well() -> None:
    assert resolve_dtype("auto", CPU) in (torch.float32, torch.bfloat16)
    assert resolve_dtype("auto", torch.device("cuda")) == torch.bfloat16
    assert resolve_dtype("float32", torch.device("cuda")) == torch.float32
    with pytest.raises(ModelError, match=r"no dtype 'int8'.*'bfloat16'"):
        resolve_dtype("int8", CPU)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", ["tpu", "cuda:99"])
def test_a_device_that_is_not_there_is_named(folder: Path, device: str) -> None:
    with pytest.raises(ModelError, match=f"'{device}' cannot be used here.*device='cpu'"):
        load_model(folder, device=device)


def test_identity_is_that_of_the_weights_wherever_they_lie(make_tiny: Any, tmp_path: Path) -> None:
    whole = load_model(make_tiny("llama").folder, dtype="float32")
    moved = (tmp_path / "llama").rename(tmp_path / "moved")
    sharded = load_model(make_tiny("llama", shard="20KB").folder, dtype="bfloat16")
    assert whole.identity == load_model(moved).identity == sharded.identity
    assert len(list(sharded_files(tmp_path / "llama"))) > 1


def sharded_files(folder: Path) -> list[Path]:
    return sorted(folder.glob("model-*.safetensors"))


def test_identity_differs_when_weights_config_or_vocabulary_differ(folder: Path, edit_json: Any) -> None:
    seen = {load_model(folder).identity}
    change(folder / "model.safetensors", model__norm__weight=torch.full((48,), 0.5))
    seen.add(load_model(folder).identity)
    edit_json(folder / "config.json", rms_norm_eps=1e-6)
    seen.add(load_model(folder).identity)
    edit_json(folder / "tokenizer.json", normalizer={"type": "NFC"})
    seen.add(load_model(folder).identity)
    assert len(seen) == 4


def test_a_missing_tensor_is_named_with_its_file(folder: Path) -> None:
    change(folder / "model.safetensors", model__norm__weight=None)
    with pytest.raises(ModelError, match=rf"'model\.norm\.weight' of {folder} is missing"):
        load_model(folder)


def test_a_wrong_shape_is_named_with_its_file(folder: Path) -> None:
    change(folder / "model.safetensors", model__norm__weight=torch.ones(7))
    with pytest.raises(ModelError, match=r"norm\.weight' of .*model\.safetensors has the shape \(7,\).*\(48,\)"):
        load_model(folder)


def test_a_tensor_without_a_part_in_the_decoder_is_refused(folder: Path) -> None:
    change(folder / "model.safetensors", model__layers__0__self_attn__q_norm__weight=torch.ones(8))
    with pytest.raises(ModelError, match=r"q_norm\.weight' of .* has no part in the decoder of architecture 'llama'"):
        load_model(folder)


def test_integer_weights_are_refused(folder: Path) -> None:
    change(folder / "model.safetensors", model__norm__weight=torch.ones(48, dtype=torch.int8))
    with pytest.raises(ModelError, match=r"'model\.norm\.weight' .* is stored as torch\.int8"):
        load_model(folder)


def test_a_missing_shard_is_named(make_tiny: Any) -> None:
    folder = make_tiny("llama", shard="20KB").folder
    sharded_files(folder)[1].unlink()
    with pytest.raises(ModelError, match=r"model-00002-of-\d+\.safetensors is missing"):
        load_model(folder)


def anonymous_bytes() -> int:
    """Memory of this process that is no mapped file."""
    status = Path("/proc/self/status").read_text()
    return int(re.search(r"RssAnon:\s+(\d+) kB", status)[1]) << 10  # type: ignore[index]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")
def test_loading_takes_the_weights_memory_and_not_twice_that(make_tiny: Any) -> None:
    wide = {"hidden_size": 512, "intermediate_size": 1536, "num_attention_heads": 8, "num_hidden_layers": 6}
    folder = make_tiny("llama", shard="20MB", **wide).folder
    weights = sum(path.stat().st_size for path in folder.glob("*.safetensors"))
    assert weights > 60 << 20 and len(list(folder.glob("*.safetensors"))) > 2
    source, most, done = SafetensorsFolder(folder), 0, threading.Event()

    def watch() -> None:
        nonlocal most
        while not done.is_set():
            most = max(most, anonymous_bytes())
            time.sleep(0.001)

    gc.collect()
    before, watcher = anonymous_bytes(), threading.Thread(target=watch)
    watcher.start()
    kept = assemble(source.config(), source, CPU, torch.float32)
    done.set()
    watcher.join()
    assert len(kept.layers) == 6
    assert 0.3 * weights < most - before < 1.3 * weights, "a little less than all where the process had free memory"


def test_a_broken_file_is_named(folder: Path) -> None:
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(ModelError, match=r"model\.safetensors is not a readable safetensors file"):
        load_model(folder)


@pytest.mark.parametrize(("content", "message"), [("{", "not readable as JSON"), ("[]", "no JSON object")])
def test_a_broken_config_is_named(folder: Path, content: str, message: str) -> None:
    (folder / "config.json").write_text(content)
    with pytest.raises(ModelError, match=rf"config\.json .*{message}"):
        load_model(folder)


def test_a_folder_without_weights_says_what_is_needed(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"model\.safetensors is missing.*or a \.gguf file"):
        load_model(tmp_path)


def test_a_tokenizer_of_another_model_is_refused(folder: Path, edit_json: Any) -> None:
    token = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    added = [{**token, "id": 256 + number, "content": f"<{number}>"} for number in range(60)]
    edit_json(folder / "tokenizer.json", added_tokens=added)
    with pytest.raises(ModelError, match="has 316 tokens, and its weights know 300"):
        load_model(folder)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("tokenizer_config.json", "{"),
        ("tokenizer_config.json", "[]"),
        ("model.safetensors.index.json", '{"weight_map": []}'),
        ("model.safetensors.index.json", '{"weight_map": {"model.norm.weight": 5}}'),
    ],
)
def test_whatever_is_malformed_beside_the_weights_is_one_kind_of_error(folder: Path, file: str, content: str) -> None:
    (folder / file).write_text(content)
    with pytest.raises(ModelError, match=r"Fetch|fetch"):
        load_model(folder)


@pytest.mark.parametrize(
    "change",
    [
        {"num_attention_heads": 0},
        {"num_attention_heads": -6},
        {"head_dim": -8},
        {"rms_norm_eps": "small"},
        {"hidden_size": [48]},
        {"rope_parameters": {"rope_theta": {}}},
        {"max_position_embeddings": "many"},
    ],
    ids=str,
)
def test_so_is_a_config_of_impossible_values(folder: Path, edit_json: Any, change: dict[str, Any]) -> None:
    edit_json(folder / "config.json", **change)
    with pytest.raises(ModelError):
        load_model(folder)


def test_a_fetched_file_that_became_malformed_says_what_to_delete(
    default_model_file: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("QUAIL_FRAMES_CACHE", str(tmp_path))
    place = tmp_path / "models" / "smollm2-135m" / default_model_file.name
    place.parent.mkdir(parents=True)
    with place.open("wb") as file:
        file.truncate(default_model_file.stat().st_size)
    with pytest.raises(ModelError, match=f"To have it fetched again, delete {place}"):
        load_model("smollm2-135m")
