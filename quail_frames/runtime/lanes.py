"""Threads that each compute alone, on rows or lists of their own.

A library's own threads share out every single operation and wait for each other after it; lanes share out whole
stretches of a layer, so that what one operation leaves in a core's cache is what the next one reads there.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, TypeVar

import torch

if TYPE_CHECKING:
    from threadpoolctl import ThreadpoolController

T = TypeVar("T")

TASK_ROWS = 512
"""Rows of a task, half as many more at most: the widest state of a layer (6 MB in SmolLM2-135M, 3 in bfloat16) stays in
the cache until it is used, and each task reads all weights of a layer. In bfloat16 with AMX, tasks of 384 and of 1,024
rows took 1.02 and 1.07 to 1.17 times as long, tasks of 256 1.09 times."""
WHOLE_ROWS = 32
"""Longer tasks begin at whole numbers of so many rows, which the kernels compute at a time."""
LEAST_ROWS = 12
"""Rows of a lane; fewer than twice as many are not shared out: each lane would read all weights for little.

A core's matrix products reach 40 GFLOP/s with 16 rows, 48 with 32 and 73 with 512, so that two lanes compute 32 rows
1.6 times as fast as one (OpenBLAS, the shapes of SmolLM2-135M, an AVX2 machine; `benchmarks/products.py`).
"""


class Lanes:
    """As many threads as torch may use when this is made; torch and NumPy split nothing further inside them.

    >>> found = []
    >>> Lanes(2).call(lambda: found.append(torch.get_num_threads()))
    >>> found
    [1]
    """

    def __init__(self, threads: int | None = None) -> None:
        asked = torch.get_num_threads()
        self.threads = threads or asked
        self._pool = ThreadPoolExecutor(self.threads, "quail-frames-lane", _compute_alone)
        met = threading.Barrier(self.threads)
        for started in [self._pool.submit(met.wait) for _ in range(self.threads)]:
            started.result()
        torch.set_num_threads(asked)  # the lanes' 1 would else hold for all threads to come

    def call(self, work: Callable[[], T]) -> T:
        """What `work` returns, run in a lane, from where it may `run` tasks."""
        with _BLAS_ALONE:
            running = self._pool.submit(work)
            try:
                return running.result()
            finally:
                wait([running])  # also where the waiting itself is interrupted: its states and pages are in use

    def run(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run tasks that do not depend on each other; for work that itself runs in a lane."""
        left = deque(tasks)
        helpers = [self._pool.submit(_work, left) for _ in range(min(self.threads, len(tasks)) - 1)]
        try:
            _work(left)
        finally:
            left.clear()
            running = [helper for helper in helpers if not helper.cancel()]
            wait(running)
        for helper in running:
            helper.result()

    def spans(self, rows: int, about: int) -> list[slice]:
        """Rows cut into tasks of `about` so many, as many tasks for each lane.

        >>> Lanes(2).spans(1200, 512)
        [slice(0, 608, None), slice(608, 1200, None)]
        """
        return spans(rows, self.threads, about)


class Alone:
    """In place of `Lanes`: everything in the calling thread, with what threads torch has."""

    threads = 1

    def call(self, work: Callable[[], T]) -> T:
        """What `work` returns."""
        return work()

    def run(self, tasks: Sequence[Callable[[], None]]) -> None:
        """Run the tasks."""
        for task in tasks:
            task()

    def spans(self, rows: int, about: int) -> list[slice]:
        """All rows at once."""
        return [slice(0, rows)]


def spans(rows: int, threads: int, about: int) -> list[slice]:
    """Runs of `about` so many rows, of like length: a whole number for each thread, unless rows are few."""
    wanted = threads * max(1, round(rows / (threads * about)))
    count = max(1, min(wanted, rows // LEAST_ROWS))
    whole = WHOLE_ROWS if rows >= 4 * WHOLE_ROWS * count else 1
    pieces = -(-rows // whole)
    bounds = [min(pieces * number // count * whole, rows) for number in range(count + 1)]
    return [slice(start, stop) for start, stop in pairwise(bounds)]


def _compute_alone() -> None:
    """torch splits nothing further in this thread."""
    torch.get_num_threads()  # a thread's first question sets its number to the process's: it must not come after
    torch.set_num_threads(1)


@torch.inference_mode()
def _work(left: deque[Callable[[], None]]) -> None:
    while True:
        try:
            task = left.popleft()
        except IndexError:  # another lane took the last one
            return
        task()


class _BlasAlone:
    """NumPy's BLAS computes in the calling thread alone until the last user has left; its setting is the process's."""

    def __init__(self) -> None:
        self._lock, self._users = threading.Lock(), 0

    def __enter__(self) -> None:
        with self._lock:
            if not self._users:
                blas = _blas()
                self._limited = None if blas is None else blas.limit(limits=1)
            self._users += 1

    def __exit__(self, *exc: object) -> None:
        with self._lock:
            self._users -= 1
            if not self._users and self._limited is not None:
                self._limited.restore_original_limits()


@cache
def _blas() -> ThreadpoolController | None:
    try:
        from threadpoolctl import ThreadpoolController
    except ModuleNotFoundError:  # a GPU machine may lack it: NumPy's threads then stand in the lanes' way, no more
        return None
    return ThreadpoolController().select(user_api="blas")


_BLAS_ALONE = _BlasAlone()
