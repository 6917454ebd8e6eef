"""What a run did, in numbers that can be added up."""

from __future__ import annotations

import dataclasses
from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from quail_frames.cost.work import NOTHING, Work
from quail_frames.plan.calls import AiCall


@dataclass(frozen=True)
class LearnedShare:
    """What was believed of a call when the order changed.

    call        the call in short
    origin      where its first estimate came from: stated, remembered or assumed
    was, now    share of its answers that pass its test, when the order was last chosen and since
    answers     how many answers of this run that rests on
    """

    call: str
    origin: str
    was: float
    now: float
    answers: int

    def __str__(self) -> str:
        return f"{self.call} passes {self.now:.0%}, not {self.was:.0%} ({self.origin})"


@dataclass(frozen=True)
class OrderChange:
    """From row `row` on, the questions of a filter were asked in another order.

    before, after    the calls in short, in the order asked
    learned          why: what was learned of each of them
    saves            share of the work that this was expected to save
    """

    row: int
    before: tuple[str, ...]
    after: tuple[str, ...]
    learned: tuple[LearnedShare, ...]
    saves: float

    def __str__(self) -> str:
        moved = "; ".join(str(each) for each in self.learned if abs(each.now - each.was) >= 0.01)
        return f"from row {self.row:,} on: {', then '.join(self.after)} ({moved})"


@dataclass(frozen=True)
class Failure:
    """A question that was not answered; the answer is null.

    call        name of the call's answer column unless aliased
    row         number of the row in the call's input, from zero; of a pair, that of its anchor
    reason      what went wrong
    partner     number of the partner's row, where the call was asked of pairs
    """

    call: str
    row: int
    reason: str
    partner: int | None = None


@dataclass
class RunReport:
    """Counters of one query; the engine adds to them while it runs.

    rows                input rows read by AI operators
    decided             of these, rows that every question has been settled for
    asks                questions put to the model (one for equal inputs)
    answers             answers given to rows or pairs, those shared by equal rows included
    fresh_tokens        tokens that the model computed
    reused_tokens       tokens that an ask saw in a resident context instead of computing them
    regret_tokens       tokens computed again because their context had been evicted
    truncated           prompts cut to the model's context (`overflow="truncate"`)
    overflowed          prompts answered null because they did not fit (`overflow="null"`)
    batches             runs of the model
    halved              times that the token budget was halved because a batch did not fit the device's memory
    device_seconds      time the model was running
    work                what the model did, as the cost model counts it
    asked, passed       by the identity of a call: how often it was asked, and answered TRUE
    seconds             time from the first batch read to the last answer
    order_changes       where a filter's questions changed their order while it ran, and why
    failures            questions that an endpoint did not answer, as `Failure`s; `pl.DataFrame(report.failures)`
    """

    rows: int = 0
    decided: int = 0
    asks: int = 0
    answers: int = 0
    fresh_tokens: int = 0
    reused_tokens: int = 0
    regret_tokens: int = 0
    truncated: int = 0
    overflowed: int = 0
    batches: int = 0
    halved: int = 0
    device_seconds: float = 0.0
    seconds: float = 0.0
    work: Work = NOTHING
    asked: Counter[str] = field(default_factory=Counter)
    passed: Counter[str] = field(default_factory=Counter)
    order_changes: tuple[OrderChange, ...] = ()
    failures: list[Failure] = field(default_factory=list)

    @property
    def deduplicated(self) -> int:
        """Answers given to a row from an equal row's ask."""
        return max(self.answers - self.asks, 0)

    @property
    def tokens_per_second(self) -> float:
        """Fresh tokens per second of the run; 0 before it has run."""
        return self.fresh_tokens / self.seconds if self.seconds else 0.0

    def count(self, call: AiCall, asked: int, passed: int) -> None:
        """Count questions that were settled, and those of them answered TRUE."""
        self.asks += asked
        self.asked[call.identity] += asked
        self.passed[call.identity] += passed

    def to_dict(self) -> dict[str, Any]:
        """All counters as plain data."""
        return {counter.name: _plain(getattr(self, counter.name)) for counter in dataclasses.fields(self)}

    def __str__(self) -> str:
        """A small table for people."""
        names = {
            "rows read": f"{self.rows:,}",
            "questions asked": f"{self.asks:,}",
            "answers given": f"{self.answers:,}",
            "tokens computed": f"{self.fresh_tokens:,}",
            "tokens saved by KV rewind": f"{self.reused_tokens:,}",
            "tokens computed per second": f"{self.tokens_per_second:,.0f}",
            "batches": f"{self.batches:,}",
            "seconds": f"{self.seconds:,.1f}",
        }
        optional = {
            "answers shared by equal rows": self.deduplicated,
            "tokens computed again": self.regret_tokens,
            "prompts cut": self.truncated,
            "prompts too long, answered null": self.overflowed,
            "changes of the questions' order": len(self.order_changes),
            "token budget halved, out of memory": self.halved,
            "questions not answered, null": len(self.failures),
        }
        names |= {name: f"{value:,}" for name, value in optional.items() if value}
        width = max(map(len, names))
        lines = [f"{name:<{width}}  {value:>12}" for name, value in names.items()]
        return "\n".join([*lines, *(f"  {change}" for change in self.order_changes)])

    def add(self, other: RunReport) -> None:
        """Add another report's counters to this one."""
        for counter in dataclasses.fields(self):
            setattr(self, counter.name, getattr(self, counter.name) + getattr(other, counter.name))


def _plain(value: Any) -> Any:
    if isinstance(value, Counter):
        return dict(value)
    if isinstance(value, tuple | list):
        return [_plain(each) for each in value]
    return dataclasses.asdict(value) if dataclasses.is_dataclass(value) and not isinstance(value, type) else value
