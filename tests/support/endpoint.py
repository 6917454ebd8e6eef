"""A small HTTP server in a thread that speaks OpenAI's protocol, and goes wrong as told.

It answers "TRUE" where the prompt's number is even; of labels, the one at the number modulo
their count.
"""

from __future__ import annotations

import asyncio
import json
import math
import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

Fault = str
"""`ok`, a status such as `500` or `429 after 0.1`, `hang`, `cut`, `garbage`, `wrong`, `empty`."""


@dataclass
class Endpoint:
    """Serves until the `with` block ends; `url` is its base address.

    fault         (prompt, how often it was asked before) -> what goes wrong
    owner         who owns the models: what kind of server it says it is
    unknown       words of a request that it refuses
    seconds       how long an answer takes
    requests      every request, in order
    answered      how often each prompt was answered in full
    most_open     connections that were open at once
    """

    fault: Callable[[str, int], Fault] = lambda prompt, before: "ok"
    owner: str = "somebody"
    key: str | None = None
    unknown: tuple[str, ...] = ()
    seconds: float = 0.0
    requests: list[dict[str, Any]] = field(default_factory=list)
    answered: Counter[str] = field(default_factory=Counter)
    asked: Counter[str] = field(default_factory=Counter)
    open: int = 0
    most_open: int = 0
    under_way: int = 0
    most_under_way: int = 0

    def __enter__(self) -> Endpoint:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        start = asyncio.start_server(self._connection, "127.0.0.1", 0, backlog=512)
        self._server = asyncio.run_coroutine_threadsafe(start, self._loop).result()
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    def __exit__(self, *exc: object) -> None:
        async def end() -> None:
            self._server.close()
            tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

        asyncio.run_coroutine_threadsafe(end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open += 1
        self.most_open = max(self.most_open, self.open)
        try:
            while await self._exchange(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self.open -= 1
            writer.close()

    async def _exchange(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """One request; False where the connection is to end."""
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin1")
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        body = await reader.readexactly(int(length[1])) if length else b""
        if self.key is not None and f"authorization: bearer {self.key}" not in head.lower():
            return await _send(writer, 401, {"error": {"message": "no such key"}})
        if head.startswith("GET /v1/models"):
            return await _send(writer, 200, {"data": [{"id": "some-model", "owned_by": self.owner}]})
        if head.startswith("GET /version"):
            return await _send(writer, 200, {"version": "0.32.0"})
        request = json.loads(body)
        self.requests.append(request)
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            await asyncio.sleep(self.seconds)
            return await self._reply(request, reader, writer)
        finally:
            self.under_way -= 1

    async def _reply(self, request: dict[str, Any], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        refused = [word for word in self.unknown if word in request]
        if refused:
            return await _send(writer, 400, {"error": {"message": f"unknown parameter: {refused[0]}"}})
        prompt = prompt_of(request)
        fault = self.fault(prompt, self.asked[prompt])
        self.asked[prompt] += 1
        if fault == "hang":
            await reader.read()  # until the other side closes
            return False
        if fault == "cut":
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 500\r\n\r\n{"choices": [')
            await writer.drain()
            return False
        if fault[0].isdigit():
            status, *after = fault.split(" after ")
            return await _send(
                writer, int(status), {"error": {"message": "not now"}}, after=after[0] if after else None
            )
        content = {"garbage": "<html>", "empty": {"choices": []}, "wrong": _answer(request, "Perhaps")}.get(fault)
        if content is None:
            content = _answer(request)
            self.answered[prompt] += 1
        return await _send(writer, 200, content)


async def _send(writer: asyncio.StreamWriter, status: int, content: object, after: str | None = None) -> bool:
    body = content.encode() if isinstance(content, str) else json.dumps(content).encode()
    wait = f"Retry-After: {after}\r\n" if after else ""
    writer.write(f"HTTP/1.1 {status} X\r\n{wait}Content-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()
    return True


def prompt_of(request: dict[str, Any]) -> str:
    """The prompt that was asked, less what was said after it."""
    return str(request["prompt"] if "prompt" in request else request["messages"][1]["content"])


def number_in(prompt: str) -> int:
    """The number in the prompt's "text 123"."""
    found = re.search(r"text (\d+)", prompt)
    return int(found[1]) if found else 0


def expected(prompt: str) -> str:
    """The right answer, as text."""
    labels = re.findall(r"\n- (\w): ", prompt) or re.findall(r"\n- (.+)", prompt)
    number = number_in(prompt)
    return labels[number % len(labels)] if labels else ("TRUE" if number % 2 == 0 else "FALSE")


def _answer(request: dict[str, Any], text: str | None = None) -> dict[str, Any]:
    prompt = prompt_of(request)
    right = expected(prompt) if text is None else text
    said = json.dumps({"answer": right}) if "response_format" in request else right
    usage = {"prompt_tokens": len(prompt) // 4, "prompt_tokens_details": {"cached_tokens": 3}}
    listed = {right: math.log(0.75), "FALSE" if right != "FALSE" else "TRUE": math.log(0.125), "The": math.log(0.0625)}
    if "prompt" in request:
        logprobs = {"tokens": [" " + said], "token_logprobs": [listed[right]], "top_logprobs": [listed]}
        choice: dict[str, Any] = {"text": " " + said, "logprobs": logprobs if "logprobs" in request else None}
        return {"choices": [choice], "usage": usage}
    choice = {"message": {"role": "assistant", "content": said}, "finish_reason": "stop"}
    if request.get("logprobs"):
        tops = [{"token": token, "logprob": value} for token, value in listed.items()]
        choice["logprobs"] = {"content": [{"token": right, "logprob": listed[right], "top_logprobs": tops}]}
    return {"choices": [choice], "usage": usage}
