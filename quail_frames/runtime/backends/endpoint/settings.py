"""What the user says about an endpoint."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from quail_frames.errors import ModelError

OPENAI = "https://api.openai.com/v1"
APIS = ("chat", "completions")
LEAST = {"concurrency": 1, "timeout": 0.001, "retries": 0, "backoff": 0, "longest_wait": 0}
STRUCTURED = ("auto", "json_schema", "structured_outputs", "guided_choice", "grammar", "none")


@dataclass(frozen=True)
class EndpointSettings:
    """See `BackendOptions` for the fields; seconds, and counts a minute."""

    model: str
    base_url: str = OPENAI
    api_key: str | None = field(default=None, repr=False)
    concurrency: int = 32
    timeout: float = 60.0
    retries: int = 5
    backoff: float = 0.5
    longest_wait: float = 60.0
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    api: str = "chat"
    structured: str = "auto"
    extra_body: Mapping[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(model: str, options: Mapping[str, Any]) -> EndpointSettings:
        """From the user's options; what is not said comes from `OPENAI_BASE_URL` and `OPENAI_API_KEY`.

        Raises
        ------
        ModelError
            An option has a value that cannot be.
        """
        given = dict(options)
        given["base_url"] = given.get("base_url") or os.environ.get("OPENAI_BASE_URL") or OPENAI
        given["api_key"] = given.get("api_key") or os.environ.get("OPENAI_API_KEY") or None
        settings = EndpointSettings(model, **given)
        settings._check()
        return replace(settings, base_url=settings.base_url.rstrip("/"))

    def _check(self) -> None:
        for name in ("base_url", "api_key"):
            if not isinstance(getattr(self, name), str | None):
                raise ModelError(f"{name}= takes a str, not a value of type {type(getattr(self, name)).__name__}.")
        if not self.base_url.startswith(("http://", "https://")):
            raise ModelError(f"base_url={self.base_url!r} is no HTTP address; write 'http://localhost:8000/v1'.")
        for name, least in LEAST.items():
            value = getattr(self, name)
            if not _is_number(value, whole=name in ("concurrency", "retries")) or value < least:
                raise ModelError(f"{name}={value!r} is no number from {least} on; give one, or leave it out.")
        for name in ("requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and (not _is_number(value) or value <= 0):
                raise ModelError(f"{name}={value!r} would never ask; give a positive number, or None.")
        for name, known in (("api", APIS), ("structured", STRUCTURED)):
            if getattr(self, name) not in known:
                raise ModelError(f"{name}={getattr(self, name)!r}: choose {', '.join(map(repr, known))}.")
        if not isinstance(self.extra_body, Mapping):
            raise ModelError(f"extra_body={self.extra_body!r}: give a mapping of further fields of a request.")


def _is_number(value: object, whole: bool = False) -> bool:
    """Whether it is a number that is neither a bool nor NaN."""
    kinds = int if whole else (int, float)
    return isinstance(value, kinds) and not isinstance(value, bool) and value == value
