"""From a name to files."""

from __future__ import annotations

from pathlib import Path

import pytest

from quail_frames.errors import ModelError
from quail_frames.runtime.models.hub import cache_folder, resolve


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
    with pytest.raises(ModelError, match=r"No model .*'smollm2-135m'.*model='/path/to/file\.gguf'"):
        resolve(name)


def test_another_kind_of_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "model.bin"
    file.touch()
    with pytest.raises(ModelError, match=r"neither a \.gguf file nor a folder"):
        resolve(file)


def test_a_hugging_face_id_offline_says_how_to_give_a_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    with pytest.raises(ModelError, match=r"'quail/nothing' is not in the local Hugging Face cache.*'/path/to/folder'"):
        resolve("quail/nothing")
