"""What can go wrong with one attempt, by what has to be done about it. A `ModelError` ends the run."""

from __future__ import annotations


class Trouble(Exception):
    """An attempt that gave no answer; `reason` in words for the user."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class Retry(Trouble):
    """Another attempt may succeed, after so many seconds where the endpoint says how many."""

    def __init__(self, reason: str, after: float | None = None, everyone: bool = False) -> None:
        super().__init__(reason)
        self.after = after
        self.everyone = everyone
        """The endpoint asks all requests to wait, not just this one."""


class WrongAnswer(Trouble):
    """The endpoint answered, but with none of the allowed answers."""

    def __init__(self, text: str) -> None:
        shown = text if len(text) <= 60 else text[:57] + "..."
        super().__init__(f"the answer {shown!r} is none of the allowed ones")
        self.text = text


class Refused(Trouble):
    """The endpoint will not answer this question."""


class Unsupported(Trouble):
    """The endpoint does not know something that the request makes use of."""
