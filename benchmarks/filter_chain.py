"""Three questions asked of every review: our chain against whole prompts through a transformers loop.

Both sides run the same weights, token ids, dtype and threads, chunk by chunk in turn.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict, dataclass, field

import numpy as np
import numpy.typing as npt
import torch

from benchmarks import data
from benchmarks.common import Machine, Spent, Watch, model_options, show, write
from benchmarks.prompts import filter_call, row_prompts, token_batch
from benchmarks.transformers_loop import TransformersLoop
from quail_frames.plan.physical import AnswerOutput, Chain, PlannedCall
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.export import huggingface_folder
from quail_frames.runtime.readouts.true_false import TrueFalseReadout
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.tokens.ragged import Ragged

QUESTIONS = (
    "Is the film a comedy?",
    "Does the review mention a director?",
    "Does this review name an actor or an actress?",
)
"""The default model says TRUE to each for a half to two thirds of the reviews, so a chain of filters has survivors."""
TOKENS = 280
CHUNKS = 4
NOISE = {"float32": 0.02, "bfloat16": 0.5}
"""Logit margins below this may flip between two orders of summation."""

Bool = npt.NDArray[np.bool_]


@dataclass
class Side:
    """What one side did."""

    tokens: int = 0
    spent: Spent = field(default_factory=Spent)

    def add(self, tokens: int, spent: Spent) -> None:
        """One chunk more."""
        self.tokens += tokens
        self.spent += spent


@dataclass(frozen=True)
class Result:
    """Figures of the run; ratios are the loop's over ours."""

    texts: int
    tokens_of_texts: int
    ours: Side
    loop: Side
    agreement: float
    widest_difference: float
    """The loop's largest margin among answers that differ: below the dtype's noise where both sides are right."""

    @property
    def ratio_tokens(self) -> float:
        return self.loop.tokens / self.ours.tokens

    @property
    def ratio_seconds(self) -> float:
        return self.loop.spent.wall / self.ours.spent.wall

    @property
    def ratio_processor(self) -> float:
        return self.loop.spent.processor / self.ours.spent.processor


def chain_of(calls: list[PlannedCall]) -> Chain:
    """Every call asked of every row."""
    outputs = tuple(AnswerOutput(f"answer_{number}", number) for number in range(len(calls)))
    return Chain(("text",), (), tuple(calls), tuple(range(len(calls))), None, outputs)


def ask_ours(engine: Engine, calls: list[PlannedCall], rows: Ragged) -> tuple[Bool, int, Spent]:
    """(answers [calls, rows], tokens computed, time)."""
    report = RunReport()
    watch = Watch()
    batches = list(engine.run(chain_of(calls), [token_batch("text", rows)], report))
    spent = watch.spent()
    answers = [np.concatenate([b.column(f"answer_{n}").to_numpy(False) for b in batches]) for n in range(len(calls))]
    return np.stack(answers).astype(np.bool_), report.fresh_tokens, spent


def ask_loop(loop: TransformersLoop, readout: TrueFalseReadout, prompts: list[Ragged]) -> tuple[np.ndarray, int, Spent]:
    """(margins [calls, rows], tokens computed without padding, time)."""
    watch = Watch()
    margins = [readout.margins(loop.logits(each, readout.spec.token_ids)) for each in prompts]
    spent = watch.spent()
    return np.stack(margins), sum(len(each.values) for each in prompts), spent


def measure(engine: Engine, loop: TransformersLoop, rows: Ragged, chunks: int = CHUNKS) -> Result:
    """Both sides over all rows, taking turns; who begins alternates."""
    calls = [filter_call(engine, question) for question in QUESTIONS]
    readout = engine.compile(calls[0]).readout
    assert isinstance(readout, TrueFalseReadout)
    ours, theirs = Side(), Side()
    answers, margins = [], []

    def run_ours(part: Ragged) -> None:
        found, tokens, spent = ask_ours(engine, calls, part)
        answers.append(found)
        ours.add(tokens, spent)

    def run_loop(part: Ragged) -> None:
        found, tokens, spent = ask_loop(loop, readout, [row_prompts(engine, call, part) for call in calls])
        margins.append(found)
        theirs.add(tokens, spent)

    for number, chosen in enumerate(np.array_split(np.arange(len(rows)), chunks)):
        for side in (run_ours, run_loop) if number % 2 == 0 else (run_loop, run_ours):
            side(rows.take(chosen))
    margin = np.concatenate(margins, axis=1)
    differs = (margin > 0) != np.concatenate(answers, axis=1)
    widest = float(np.abs(margin[differs]).max(initial=0.0))
    return Result(len(rows), len(rows.values), ours, theirs, 1 - float(differs.mean()), widest)


def run(options: Namespace) -> Result:
    """Load both sides, warm them up, measure."""
    torch.set_num_threads(options.threads)
    with Engine(options.model, dtype=options.dtype) as engine:
        loop = TransformersLoop(huggingface_folder(options.model), options.dtype)
        texts = data.cut_to(data.texts("reviews"), TOKENS, engine.tokenizer)[: options.texts]
        rows = engine.tokenizer.encode(texts)
        measure(engine, loop, rows.take(np.arange(2)), chunks=1)
        return measure(engine, loop, rows)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = model_options(__doc__)
    parser.add_argument("--texts", type=int, default=200, help="how many reviews (default: %(default)s)")
    options = parser.parse_args(arguments)
    machine = Machine.here()
    result = run(options)
    report(result, options, machine)
    if result.widest_difference > NOISE[options.dtype]:
        raise SystemExit(f"answers differ where the margin is {result.widest_difference:.3f}: not rounding noise")


def report(result: Result, options: Namespace, machine: Machine) -> None:
    """Print the table and write the JSON."""
    sides = {"transformers loop": result.loop, "quail-frames": result.ours}
    rows = [
        [name, side.tokens, side.spent.wall, side.tokens / side.spent.wall, side.spent.processor]
        for name, side in sides.items()
    ]
    title = f"3 questions x {result.texts} reviews of {result.tokens_of_texts / result.texts:.0f} tokens"
    caption = (
        f"answers agree: {result.agreement:.2%} (largest margin of one that differs: {result.widest_difference:.4f})\n"
        f"{options.model}, {options.dtype}, {options.threads} threads; {machine.line()}"
    )
    ratios = ["ratio", result.ratio_tokens, result.ratio_seconds, "", result.ratio_processor]
    show(title, ["", "tokens", "seconds", "tokens/s", "processor s"], [*rows, ratios], caption)
    settings = {"model": options.model, "dtype": options.dtype, "threads": options.threads}
    figures = {**asdict(result), "ratio_tokens": result.ratio_tokens, "ratio_seconds": result.ratio_seconds}
    figures["ratio_processor_seconds"] = result.ratio_processor
    write(options.json, {**figures, **settings}, machine)


if __name__ == "__main__":
    main()
