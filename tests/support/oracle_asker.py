"""The oracle behind requests: answers whole prompts, in a shuffled order, from another thread."""

from __future__ import annotations

import dataclasses
import random
import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue

import numpy as np

from quail_frames.runtime.backends.asking import Answered, Reply, WholeAsk
from quail_frames.runtime.backends.scheduler import RequestModel
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.loading import open_model
from quail_frames.runtime.oracle import logits_of, state_of, with_normalizer


class OracleAsker:
    """Answers as the oracle model does.

    Parameters
    ----------
    most_asks
        Asks under way at once.
    fails
        The reason for which the ask of this number is not answered, or an error; None where it is.
    """

    most_tokens = 1 << 20

    def __init__(
        self,
        seed: int = 0,
        most_asks: int = 7,
        staged: bool = False,
        fails: Callable[[int], str | Exception | None] = lambda number: None,
    ) -> None:
        self.most_asks, self.staged, self._fails = most_asks, staged, fails
        self.asked: list[bytes] = []
        self.most_seen = 0
        self._random = random.Random(seed)
        self._waiting: SimpleQueue[tuple[int, WholeAsk, Answered] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def ask(self, asks: Sequence[WholeAsk], answered: Answered) -> Callable[[], None]:
        for number, ask in enumerate(asks):
            self._waiting.put((number, ask, answered))
        return lambda: None

    def close(self) -> None:
        self._waiting.put(None)
        self._thread.join()

    def _serve(self) -> None:
        held: list[tuple[int, WholeAsk, Answered]] = []
        while True:
            while not self._waiting.empty() or not held:
                item = self._waiting.get()
                if item is None:
                    return
                held.append(item)
            self.most_seen = max(self.most_seen, len(held))
            number, ask, answered = held.pop(self._random.randrange(len(held)))
            answered(number, self._reply(ask))

    def _reply(self, ask: WholeAsk) -> Reply | Exception:
        self.asked.append(b"".join(prompt.tobytes() for prompt in ask.prompts))
        reason = self._fails(len(self.asked) - 1)
        if isinstance(reason, Exception):
            return reason
        if reason is not None:
            return Reply(None, reason)
        states = np.concatenate([state_of(prompt) for prompt in ask.prompts])
        logits = logits_of(states, ask.readout.token_ids)
        return Reply(with_normalizer(logits, states) if ask.readout.normalize else logits)


def behind_requests(asker: OracleAsker, kv_budget: int | None = None) -> Engine:
    """An engine that asks the oracle by requests."""
    opened = open_model("oracle", device="cpu", dtype="auto")
    return Engine(dataclasses.replace(opened, model=RequestModel(asker)), kv_budget=kv_budget)
