"""Rate limits: no more than so many requests, or tokens, are begun in a minute."""

from __future__ import annotations

import asyncio


class Pace:
    """Spreads units evenly; one is begun `60 / per_minute` seconds after the one before. None: no limit."""

    def __init__(self, per_minute: float | None) -> None:
        self._seconds = 0.0 if per_minute is None else 60.0 / per_minute
        self._next = 0.0

    async def take(self, units: float = 1.0) -> None:
        """Wait for the turn of so many units."""
        if not self._seconds:
            return
        now = asyncio.get_running_loop().time()
        begin = max(now, self._next)
        self._next = begin + units * self._seconds
        await asyncio.sleep(begin - now)
