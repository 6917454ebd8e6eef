"""Three queries on a model of random weights: a filter chain, a join of long anchors, a classification of short texts.

Each is run through the engine; beside its seconds stand the least seconds that the cost model allows its batches.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from quail_frames.cost.devices import Device
from quail_frames.cost.roofline import roofline
from quail_frames.cost.shapes import ModelShape
from quail_frames.plan.calls import AiClassify, AiIf
from quail_frames.plan.conditions import And, Answer, Not, Or
from quail_frames.plan.physical import AnswerOutput, Chain, PairJoin, PlannedCall
from quail_frames.plan.template import Slot, Template
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.report import RunReport

LETTERS = np.frombuffer(b"abcdefghijklmnopqrstuvwxyz     ", dtype=np.uint8)


@dataclass(frozen=True)
class Sizes:
    """How much each query asks; lengths in characters, about a token each."""

    documents: int = 1500
    document: int = 600
    anchors: int = 12
    anchor: int = 8000
    partners: int = 1000
    partner: int = 24
    texts: int = 6000
    text: int = 80


TINY = Sizes(documents=6, document=60, anchors=2, anchor=120, partners=8, partner=8, texts=8, text=20)


@dataclass(frozen=True)
class Measured:
    """One query. `least` is the cost model's lower bound in seconds for the batches that ran."""

    name: str
    rows: int
    fresh_tokens: int
    reused_tokens: int
    batches: int
    seconds: float
    device_seconds: float
    least: float
    halved: int

    @property
    def of_least(self) -> float:
        """Measured seconds over the least."""
        return self.seconds / self.least

    @property
    def host_seen(self) -> float:
        """Share of the time in which the device waited for the host."""
        return max(self.seconds - self.device_seconds, 0.0) / self.seconds


def texts(seed: int, count: int, length: int) -> list[str]:
    """Random words; lengths vary by a quarter around `length`."""
    random = np.random.default_rng(seed)
    lengths = random.integers(max(length * 3 // 4, 1), length * 5 // 4 + 1, count)
    return [LETTERS[random.integers(0, len(LETTERS), size)].tobytes().decode() for size in lengths]


def measure(engine: Engine, shape: ModelShape, device: Device, sizes: Sizes) -> Iterator[Measured]:
    """The three queries, each after a warm-up of a few rows (compilation, allocation)."""
    queries = {
        "three filters": (sizes.documents, lambda count: filters(engine, texts(1, count, sizes.document))),
        "join": (sizes.anchors, lambda count: join(engine, texts(2, count, sizes.anchor),
                                                   texts(3, sizes.partners, sizes.partner))),
        "10 labels": (sizes.texts, lambda count: labels(engine, texts(4, count, sizes.text))),
    }  # fmt: skip
    for name, (count, query) in queries.items():
        query(max(count // 10, 1))
        report = query(count)
        yield Measured(
            name,
            report.rows,
            report.fresh_tokens,
            report.reused_tokens,
            report.batches,
            report.seconds,
            report.device_seconds,
            roofline(report.work, shape, device, batches=report.batches).seconds,
            report.halved,
        )


def filters(engine: Engine, documents: list[str]) -> RunReport:
    """Three filters of which every document meets all: random weights have no selectivity to rely on."""
    calls = tuple(
        PlannedCall(AiIf(Template((f"Does this text mention {topic}? ", Slot(0))), ("t",)), (0,), "document_first",
                    "true_false") for topic in ("a refund", "a late parcel", "a broken part")
    )  # fmt: skip
    either = tuple(Or((Answer(number), Not(Answer(number)))) for number in range(3))
    outputs = tuple(AnswerOutput(f"a{number}", number) for number in range(3))
    plan = Chain(("t",), (), calls, (0, 1, 2), And(either), outputs)
    report = RunReport()
    for _ in engine.run(plan, _batches(documents), report):
        pass
    return report


def labels(engine: Engine, documents: list[str]) -> RunReport:
    """A classification into ten labels by letters."""
    names = ("card", "transfer", "top-up", "fee", "limit", "refund", "identity", "currency", "app", "other")
    call = AiClassify(Template((Slot(0),)), ("t",), labels=names, scoring="letters")
    plan = Chain(("t",), (), (engine.resolve(call, (0,)),), (0,), None, (AnswerOutput("label", 0),))
    report = RunReport()
    for _ in engine.run(plan, _batches(documents), report):
        pass
    return report


def join(engine: Engine, anchors: list[str], partners: list[str]) -> RunReport:
    """Every anchor with every partner."""
    match = AiIf(Template(("Does ", Slot(0), " speak of ", Slot(1), "?")), ("t", "p"))
    plan = PairJoin(("t",), ("p",), engine.resolve(match, (0, 1), anchors=(0,)))
    report = RunReport()
    sides = [AnchorBatch(batch, None) for batch in _batches(anchors)]
    for _ in engine.join(plan, sides, pa.record_batch([pa.array(partners)], names=["p"]), report):
        pass
    return report


def _batches(documents: list[str], size: int = 1024) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(documents), size):
        yield pa.record_batch([pa.array(documents[start : start + size])], names=["t"])
