"""A first look at an endpoint: is it there, does it take the key, and what kind of server is it?"""

from __future__ import annotations

from dataclasses import dataclass

import aiohttp

from quail_frames.errors import ModelError
from quail_frames.runtime.backends.endpoint.settings import EndpointSettings
from quail_frames.runtime.backends.endpoint.transport import Said, exchange, trouble_of
from quail_frames.runtime.backends.endpoint.troubles import Retry

LOOK_SECONDS = 10.0
GUIDED_BEFORE = (0, 11)
"""Versions of vLLM before this one say `guided_choice`."""


@dataclass(frozen=True)
class Found:
    """What an endpoint says of itself: who owns its models, and which version it is."""

    owners: frozenset[str] = frozenset()
    version: tuple[int, ...] = ()


async def look(session: aiohttp.ClientSession, settings: EndpointSettings) -> Found:
    """Ask the endpoint for its models; one that has no such list is taken as it is.

    Raises
    ------
    ModelError
        Nobody answers, or the key is refused.
    """
    seconds = min(settings.timeout, LOOK_SECONDS)
    try:
        said = await exchange(session, settings.base_url + "/models", None, seconds)
        owners = _owners(said)
        if "vllm" not in owners:
            version: tuple[int, ...] = ()
        else:
            version = _version(
                await exchange(session, settings.base_url.removesuffix("/v1") + "/version", None, seconds)
            )
    except Retry as error:
        raise ModelError(
            f"Nobody answers at {settings.base_url}: {error.reason}. Start the server, or give its address: "
            "base_url='http://localhost:8000/v1'."
        ) from error
    if said.status in (401, 403):
        raise trouble_of(said, settings.base_url)
    return Found(owners, version)


def structured_by(found: Found, api: str) -> str:
    """How this kind of server constrains answers; a chat of an unknown kind is asked for a JSON schema."""
    if "vllm" in found.owners:
        return "guided_choice" if found.version and found.version < GUIDED_BEFORE else "structured_outputs"
    if "llamacpp" in found.owners:
        return "grammar"
    return "json_schema" if api == "chat" else "none"


def _owners(said: Said) -> frozenset[str]:
    try:
        entries = said.json()["data"] if said.status == 200 else []
        return frozenset(str(entry.get("owned_by")) for entry in entries if isinstance(entry, dict))
    except (ValueError, KeyError, TypeError):
        return frozenset()


def _version(said: Said) -> tuple[int, ...]:
    try:
        return tuple(int(part) for part in said.json()["version"].split(".")[:2])
    except (ValueError, KeyError, TypeError, AttributeError):
        return ()
