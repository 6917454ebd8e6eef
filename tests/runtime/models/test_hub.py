"""From a name to files."""

from __future__ import annotations

from pathlib import Path

import huggingface_hub
import pytest

from quail_frames.errors import ModelError
from quail_frames.runtime.cache import cache_folder
from quail_frames.runtime.models.hub import resolve


def test_the_cache_follows_its_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("QUAIL_FRAMES_CACHE", str(tmp_path))
    assert cache_folder() == tmp_path
    monkeypatch.delenv("QUAIL_FRAMES_CACHE")
    assert cache_folder().name == "quail-frames"


def test_a_path_is_itself(tmp_path: Path) -> None:
    file = tmp_path / "weights.gguf"
    file.touch()
    assert resolve(file) == file
    assert resolve(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("name", ["smollm", "/nowhere/model.gguf", "owner/model.gguf", "./folder/x", "a/b/c"])
def test_an_unknown_name_says_what_can_be_given(name: str) -> None:
    with pytest.raises(
        ModelError, match=r"No model .*'smollm2-135m-decide' .*'smollm2-135m'.*model='/path/to/file\.gguf'"
    ):
        resolve(name)


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    file.touch()
    with pytest.raises(ModelError, match=r"neither a \.gguf file nor a folder"):
        resolve(file)


@pytest.fixture
def offline_hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """An empty Hugging Face cache, and no way to the hub."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    return tmp_path


def cached_snapshot(cache: Path, names: list[str]) -> Path:
    """Files of `quail/tiny` as the hub's client keeps them."""
    repository = cache / "models--quail--tiny"
    (repository / "refs").mkdir(parents=True)
    (repository / "refs" / "main").write_text("0" * 40)
    snapshot = repository / "snapshots" / ("0" * 40)
    snapshot.mkdir(parents=True)
    for name in names:
        (snapshot / name).write_text("{}")
    return snapshot


def test_a_hugging_face_id_offline_says_how_to_give_a_path(offline_hub: Path) -> None:
    with pytest.raises(ModelError, match=r"'quail/nothing' is not in the local Hugging Face cache.*'/path/to/folder'"):
        resolve("quail/nothing")


def test_a_hugging_face_id_in_the_local_cache_needs_no_hub(offline_hub: Path) -> None:
    snapshot = cached_snapshot(offline_hub, ["config.json", "tokenizer.json", "model.safetensors"])
    assert resolve("quail/tiny") == snapshot


def test_the_built_in_model_is_in_the_cache_folder(default_model_file: Path) -> None:
    assert default_model_file.is_relative_to(cache_folder())
    assert default_model_file.name == "SmolLM2-135M-Instruct.Q4_1.gguf"


@pytest.mark.parametrize("name", ["x" * 5000, "x" * 5000 + "/y", "x" * 300, "owner--x/name"])
def test_a_name_too_long_for_a_file_is_no_model(offline_hub: Path, name: str) -> None:
    with pytest.raises(ModelError, match="/path/to/"):
        resolve(name)
