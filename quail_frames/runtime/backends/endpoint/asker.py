"""Asks an endpoint many questions at a time, from one thread that lives as long as the engine."""

from __future__ import annotations

import asyncio
import random
import threading
import weakref
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

import aiohttp

from quail_frames.errors import ModelError, QuailFramesError
from quail_frames.runtime.backends.asking import Answered, Reply, WholeAsk
from quail_frames.runtime.backends.endpoint.byte_tokens import BYTES_PER_TOKEN, ByteTokenizer
from quail_frames.runtime.backends.endpoint.dialect import MORE_TOKENS, Dialect
from quail_frames.runtime.backends.endpoint.looking import look, structured_by
from quail_frames.runtime.backends.endpoint.pace import Pace
from quail_frames.runtime.backends.endpoint.reading import read_reply
from quail_frames.runtime.backends.endpoint.settings import EndpointSettings
from quail_frames.runtime.backends.endpoint.transport import open_session, post
from quail_frames.runtime.backends.endpoint.troubles import Refused, Retry, Unsupported, WrongAnswer
from quail_frames.runtime.readouts.answers import AnswerSpec

R = TypeVar("R")

WRONG_ANSWERS = 2
"""How often a question is asked again after an answer that is not allowed."""
HOPELESS = 16
"""This many questions given up, and none answered yet: nothing will be. As many one after the other without a reply
end a run too, but at least as many as are under way."""


class EndpointAsker:
    """Asks with bounded concurrency, retries and rate limits; a question is answered once, or given up with a reason.

    Raises
    ------
    ModelError
        Nobody answers, or the key is refused.
    """

    most_tokens = 1 << 26
    staged = False

    def __init__(self, settings: EndpointSettings) -> None:
        self.most_asks = 2 * settings.concurrency
        self._settings = settings
        self._random = random.Random()
        self._requests, self._tokens = Pace(settings.requests_per_minute), Pace(settings.tokens_per_minute)
        self._paused_until = 0.0
        self._answered_any = False
        self._silent = self._given_up = 0
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="quail-frames-endpoint", daemon=True)
        self._thread.start()
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._session = self._call(open_session(settings))
        self._end = weakref.finalize(self, _end, self._loop, self._thread, self._session)
        self.dialect = self._first_dialect()

    def ask(self, asks: Sequence[WholeAsk], answered: Answered) -> Callable[[], None]:
        """Begin to ask."""
        tasks: list[asyncio.Task[None]] = []

        def begin() -> None:
            tasks.extend(self._loop.create_task(self._one(n, ask, answered)) for n, ask in enumerate(asks))

        def cancel() -> None:
            for task in tasks:
                task.cancel()

        self._loop.call_soon_threadsafe(begin)
        return lambda: None if self._loop.is_closed() else _soon(self._loop, cancel)

    def _first_dialect(self) -> Dialect:
        settings = self._settings
        structured = settings.structured
        try:
            found = self._call(look(self._session, settings))
        except ModelError:
            self.close()
            raise
        if structured == "auto":
            structured = structured_by(found, settings.api)
        return Dialect(settings.model, settings.api, structured, extra=settings.extra_body)

    def _call(self, work: Coroutine[Any, Any, R]) -> R:
        """Do something in the asker's thread."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def close(self) -> None:
        """Cancel what is under way, close the connections, end the thread."""
        self._end()

    async def _one(self, number: int, ask: WholeAsk, answered: Answered) -> None:
        """Answer one ask, whatever happens."""
        try:
            reply: Reply | Exception = await self._answer(ask)
        except asyncio.CancelledError:
            answered(number, QuailFramesError("the run, or its engine, was closed while the endpoint was being asked"))
            raise
        except Exception as error:  # the run takes it and ends with it
            reply = error
        answered(number, reply)

    async def _answer(self, ask: WholeAsk) -> Reply:
        spec = ask.readout
        assert isinstance(spec, AnswerSpec)
        prompt = ByteTokenizer().decode(ask.prompts[0])
        attempts, wrong = 0, list[str]()
        while True:
            try:
                reply = await self._attempt(prompt, spec, wrong[-1] if wrong else None)
            except Retry as trouble:
                attempts += 1
                if attempts > self._settings.retries:
                    return self._give_up(f"{trouble.reason}, in the last of {attempts} attempts", silent=True)
                await self._wait(attempts, trouble)
            except WrongAnswer as trouble:
                wrong.append(trouble.text)
                if len(wrong) > WRONG_ANSWERS:
                    return self._give_up(f"{trouble.reason}, in the last of {len(wrong)} replies", silent=False)
            except Refused as trouble:
                return self._give_up(trouble.reason, silent=False)
            else:
                self._answered_any, self._silent = True, 0
                return reply

    async def _attempt(self, prompt: str, spec: AnswerSpec, wrong: str | None) -> Reply:
        """One attempt; further ones where the endpoint does not know a word of the request."""
        while True:
            dialect = self.dialect
            body = dialect.body(prompt, spec, wrong)
            async with self._slots:
                await self._turn(len(prompt))
                try:
                    content = await post(self._session, self._url(dialect), body, self._settings.timeout)
                except Unsupported as trouble:
                    self._adapt(dialect, trouble, spec)
                    continue
            return read_reply(content, spec)

    async def _turn(self, characters: int) -> None:
        """Wait until a request of so many characters may go out."""
        while (seconds := self._paused_until - self._loop.time()) > 0:
            await asyncio.sleep(seconds)
        await self._requests.take()
        await self._tokens.take(characters / BYTES_PER_TOKEN + MORE_TOKENS)

    def _url(self, dialect: Dialect) -> str:
        return f"{self._settings.base_url}/{dialect.path}"

    def _adapt(self, dialect: Dialect, trouble: Unsupported, spec: AnswerSpec) -> None:
        """Ask without what the endpoint does not know, from now on."""
        simpler = dialect.without(trouble.reason, spec)
        if simpler is None:
            raise Refused(trouble.reason)
        if self.dialect == dialect:  # else another request has learnt it in the meantime
            self.dialect = simpler

    async def _wait(self, attempts: int, trouble: Retry) -> None:
        """Back off before the next attempt: as long as the endpoint says, else twice as long each time, at random."""
        longest = self._settings.longest_wait
        if trouble.after is not None:
            seconds = min(trouble.after, longest)
            if trouble.everyone:
                self._paused_until = max(self._paused_until, self._loop.time() + seconds)
        else:
            seconds = min(self._settings.backoff * 2 ** (attempts - 1), longest) * self._random.uniform(0.5, 1.0)
        await asyncio.sleep(seconds)

    def _give_up(self, reason: str, silent: bool) -> Reply:
        self._given_up += 1
        self._silent = self._silent + 1 if silent else 0
        never = not self._answered_any and self._given_up >= HOPELESS
        if never or self._silent >= max(HOPELESS, self.most_asks):
            raise ModelError(
                f"{self._settings.base_url} has not answered any of the last "
                f"{self._given_up if never else self._silent} questions; the last: {reason}. Nothing more is asked."
            )
        return Reply(None, reason)


def _soon(loop: asyncio.AbstractEventLoop, what: Callable[[], None]) -> None:
    loop.call_soon_threadsafe(what)


def _end(loop: asyncio.AbstractEventLoop, thread: threading.Thread, session: aiohttp.ClientSession) -> None:
    """Runs when the asker is closed or forgotten, which may be in its own thread."""

    async def finish() -> None:
        tasks = [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await session.close()

    finished = asyncio.run_coroutine_threadsafe(finish(), loop)
    if threading.current_thread() is thread:
        finished.add_done_callback(lambda _: loop.stop())
        return
    finished.result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
