"""One attempt over HTTP: a JSON object comes back, or trouble that says what to do."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any

import aiohttp

from quail_frames.errors import ModelError
from quail_frames.runtime.backends.endpoint.settings import EndpointSettings
from quail_frames.runtime.backends.endpoint.troubles import Refused, Retry, Trouble, Unsupported

PASSING = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
"""Statuses after which another attempt may succeed."""
EVERYONE = frozenset({429, 503, 529})
"""Of these, those that are said to all requests of an account."""


@dataclass(frozen=True)
class Said:
    """A reply's status, bytes, and its `Retry-After`."""

    status: int
    content: bytes
    retry_after: str | None = None

    def json(self) -> Any:
        """The parsed content; raises ValueError where it is no JSON."""
        return json.loads(self.content)


async def open_session(settings: EndpointSettings) -> aiohttp.ClientSession:
    """Connections to one endpoint; the caller closes them."""
    key = {} if settings.api_key is None else {"Authorization": f"Bearer {settings.api_key}"}
    return aiohttp.ClientSession(
        headers={"Content-Type": "application/json", **key},
        connector=aiohttp.TCPConnector(limit=settings.concurrency),
        timeout=aiohttp.ClientTimeout(total=None),  # every attempt has one of its own
        proxy=proxy_for(settings.base_url),
    )


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address (`HTTPS_PROXY`, `NO_PROXY` and so on).

    Looked up once: aiohttp's own look-up (`trust_env`) costs two changes of thread at every request.
    """
    parts = urllib.parse.urlsplit(url)
    if parts.hostname is None or urllib.request.proxy_bypass(parts.hostname):
        return None
    return urllib.request.getproxies().get(parts.scheme)


async def exchange(session: aiohttp.ClientSession, url: str, body: bytes | None, timeout: float) -> Said:
    """Send one request (a GET where it has no body).

    Raises
    ------
    Retry
        No reply, or half of one.
    """
    method = "GET" if body is None else "POST"
    try:
        async with (
            asyncio.timeout(timeout),
            session.request(method, url, data=body, allow_redirects=False) as response,
        ):
            return Said(response.status, await response.read(), response.headers.get("Retry-After"))
    except TimeoutError as error:
        raise Retry(f"no reply within {timeout:g} s") from error
    except aiohttp.ClientError as error:
        raise Retry(f"the connection failed ({type(error).__name__}: {error})") from error


async def post(session: aiohttp.ClientSession, url: str, body: bytes, timeout: float) -> Any:
    """Send a request; the parsed reply.

    Raises
    ------
    Trouble
        No reply, or one that is no JSON, or a status that says no.
    ModelError
        A status after which asking on is no use.
    """
    said = await exchange(session, url, body, timeout)
    if said.status != 200:
        raise trouble_of(said, url)
    try:
        return said.json()
    except ValueError as error:
        raise Retry("the reply is no JSON") from error


def trouble_of(said: Said, url: str) -> Trouble | ModelError:
    """What a status other than 200 means."""
    status, message = said.status, words_of(said)
    where = f"{url} says {status}: {message}"
    if status in (401, 403):
        return ModelError(f"The endpoint refuses the key ({where}). Give another: api_key=..., or OPENAI_API_KEY.")
    if status == 404:
        return ModelError(f"The endpoint does not have what was asked for ({where}). Check model= and base_url=.")
    if status == 402 or (status == 429 and b"insufficient_quota" in said.content):
        return ModelError(f"The account has no quota left ({where}).")
    if status in PASSING:
        return Retry(f"HTTP {status}: {message}", seconds_of(said.retry_after), status in EVERYONE)
    if status in (400, 422):
        return Unsupported(f"HTTP {status}: {message}")
    return Refused(f"HTTP {status}: {message}")


def words_of(said: Said) -> str:
    """The endpoint's own words, at most 300 characters of them."""
    try:
        content = said.json()
    except ValueError:
        return said.content.decode(errors="replace").strip()[:300]
    error = content.get("error", content) if isinstance(content, dict) else content
    if isinstance(error, dict):
        error = error.get("message") or error.get("detail") or error
    return str(error)[:300]


def seconds_of(retry_after: str | None) -> float | None:
    """Seconds that the endpoint asks to wait: a number, or a date (RFC 9110, 10.2.3)."""
    if retry_after is None:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None
