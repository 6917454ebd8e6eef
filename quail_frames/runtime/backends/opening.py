"""Opening a backend by name."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from quail_frames.errors import ModelError
from quail_frames.runtime.backends.options import NativeOptions, check_backend

if TYPE_CHECKING:
    from quail_frames.runtime.loading import OpenedModel


def open_backend(backend: str, model: str, native: NativeOptions, options: Mapping[str, Any]) -> OpenedModel:
    """The model of this name behind this backend.

    Raises
    ------
    ModelError
        The backend, the model or an option is not known, a package is missing, or nobody answers.
    """
    check_backend(backend, model, native, options)
    if backend == "openai":
        _need("aiohttp", backend)
        from quail_frames.runtime.backends.endpoint.opening import open_endpoint

        return open_endpoint(model, options)
    _need("vllm", backend)
    from quail_frames.runtime.backends.vllm import open_vllm

    return open_vllm(model, native, options)


def _need(package: str, backend: str) -> None:
    if find_spec(package) is None:
        raise ModelError(f"backend={backend!r} needs the package {package}: pip install {package}.")
