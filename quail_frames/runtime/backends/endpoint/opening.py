"""Opening an endpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from quail_frames.cost.shapes import SHAPES
from quail_frames.runtime.backends.endpoint.asker import EndpointAsker
from quail_frames.runtime.backends.endpoint.byte_tokens import BYTES_PER_TOKEN, ByteTokenizer
from quail_frames.runtime.backends.endpoint.settings import EndpointSettings
from quail_frames.runtime.backends.scheduler import RequestModel
from quail_frames.runtime.compiled import ModelTraits
from quail_frames.runtime.loading import OpenedModel

MEMORY = 64 << 20
"""Bytes of texts that rows in work may hold; four a byte of text."""


def open_endpoint(model: str, options: Mapping[str, Any]) -> OpenedModel:
    """A model behind an endpoint.

    Raises
    ------
    ModelError
        Nobody answers at the address, the key is refused, or an option is wrong.
    """
    settings = EndpointSettings.of(model, options)
    return OpenedModel(
        RequestModel(EndpointAsker(settings)),
        ByteTokenizer(),
        ModelTraits(reads="answers", units_per_token=BYTES_PER_TOKEN),
        SHAPES["smollm2-135m"],
        identity=f"openai {settings.base_url} {model}",
        context_length=1 << 40,
        kv_bytes_per_token=4,
        default_kv_bytes=MEMORY,
        default_token_budget=1 << 16,
        share_from=1 << 12,
    )
