"""What a query would cost: the numbers of an estimate, for people and for programs."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from quail_frames.optimizer.estimate import PlanEstimate
from quail_frames.optimizer.explain.numbers import count, duration, money
from quail_frames.optimizer.explain.words import steps
from quail_frames.plan.logical import Ask, AskPairs


@dataclass(frozen=True)
class StepCost:
    """A step that asks a model: its words, rows in and out, questions, computed tokens and seconds."""

    step: str
    rows_in: float
    rows: float
    asks: float
    tokens: float
    seconds: float


@dataclass(frozen=True, repr=False)
class Estimate:
    """What a query is expected to cost with a model on a device.

    `seconds` are the device's roofline with the weights read once a batch, `speed_of_light` with the weights read once;
    a run takes longer by what kernels leave of the peaks. `dollars` is in the currency of `price_per_hour`, None
    where no price is known.
    """

    model: str
    device: str
    rows: float
    asks: float
    tokens: float
    seconds: float
    speed_of_light: float
    price_per_hour: float | None
    dollars: float | None
    steps: tuple[StepCost, ...]
    notes: tuple[str, ...] = ()

    @staticmethod
    def of(found: PlanEstimate) -> Estimate:
        """The numbers of an estimated plan."""
        target = found.prices.target
        asking = [step for step in found.steps if isinstance(step.node, Ask | AskPairs)]
        return Estimate(
            model=target.shape.name,
            device=target.device.name,
            rows=found.root.rows,
            asks=found.asks,
            tokens=found.work.new_tokens,
            seconds=found.seconds,
            speed_of_light=found.least_seconds,
            price_per_hour=target.device.price_per_hour,
            dollars=found.cost,
            steps=tuple(
                StepCost(
                    " ".join(line.strip() for line in steps(each.node)[-1][:3]),
                    each.rows_in,
                    each.rows,
                    each.asks,
                    each.tokens,
                    each.seconds,
                )
                for each in asking
            ),
            notes=found.prices.notes,
        )

    def to_dict(self) -> dict[str, Any]:
        """The same as plain data."""
        return asdict(self)

    def __repr__(self) -> str:
        """A small table for people."""
        head = f"{self.model} on {self.device}: about {duration(self.seconds)}"
        if self.dollars is not None:
            head += f", {money(self.dollars)} at {self.price_per_hour:,.2f} an hour"
        lines = [head, f"  {count(self.asks)} asks, {count(self.tokens)} tokens, {count(self.rows)} rows in the result"]
        for number, step in enumerate(self.steps, start=1):
            rows = f"{count(step.rows_in)} -> {count(step.rows)} rows"
            lines.append(
                f"  {number}. {rows}, {count(step.asks)} asks, {count(step.tokens)} tokens, {duration(step.seconds)}"
            )
            lines.append(f"     {step.step if len(step.step) <= 100 else step.step[:99] + '…'}")
        lines += [f"  {note}" for note in self.notes]
        return "\n".join(lines)
