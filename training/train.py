"""`python -m training.train`: trains the decision model's adapter and head; see training/README.md."""

from __future__ import annotations

import argparse
import json
import random
import time
from collections import deque
from collections.abc import Callable
from pathlib import Path

import torch

from quail_frames.runtime.models.load import load_model
from quail_frames.tuning import workers
from quail_frames.tuning.examples import Example, Prompter
from quail_frames.tuning.trainer import Recipe, StepReport, Trainer
from training.corpus import FOLDER, Corpus
from training.units.builder import Builder
from training.units.mixture import draw

BASE = "smollm2-135m"
TOKENS = 780_000
RECENT = 15


def example_source(builder: Builder, prompter: Prompter, seed: int) -> Callable[[int], Example]:
    """Example number n of a seeded stream."""

    def example(number: int) -> Example:
        unit = draw(builder.at(number), random.Random(f"{seed} {number}"))
        return prompter.example(unit)

    return example


def main() -> None:
    arguments = parse()
    arguments.out.mkdir(parents=True, exist_ok=True)
    workers.run(arguments.workers, train, arguments)


def train(own: workers.Workers, arguments: argparse.Namespace) -> None:
    """What each process does: the same run, of which it computes its share."""
    torch.set_num_threads(1)
    model = load_model(BASE, dtype="float32")
    source = example_source(Builder(Corpus(arguments.data)), Prompter(model.tokenizer), arguments.seed)
    recipe = Recipe(tokens=arguments.tokens, seed=arguments.seed)
    trainer = Trainer(model, recipe, source, workers=own)
    checkpoint = arguments.out / "checkpoint.pt"
    if checkpoint.exists():
        trainer.load(checkpoint)
        print(f"going on from step {trainer.progress.step}, {trainer.progress.tokens} tokens", flush=True)
    run(trainer, checkpoint, first=own.rank == 0)


def run(trainer: Trainer, checkpoint: Path, first: bool) -> None:
    """Train; the first process prints a line a step and saves every few minutes."""
    saved = time.monotonic()
    recent: deque[StepReport] = deque(maxlen=RECENT)
    for report in trainer.steps():
        if not first:
            continue
        recent.append(report)
        print(line(trainer, recent), flush=True)
        if time.monotonic() - saved > 180:
            trainer.save(checkpoint)
            saved = time.monotonic()
    if first:
        trainer.save(checkpoint)


def line(trainer: Trainer, recent: deque[StepReport]) -> str:
    """One step in a line: losses and the share of right answers over the last steps."""
    progress = trainer.progress
    shares: dict[str, list[int]] = {}
    for report in recent:
        for name, (right, asked) in report.right.items():
            family = name if "_" in name.split()[0] or name == "letters" else name.split()[0]
            sums = shares.setdefault(family, [0, 0])
            sums[0] += right
            sums[1] += asked
    big = {name: round(right / asked, 3) for name, (right, asked) in shares.items() if asked >= 40}
    mean = sum(report.loss for report in recent) / len(recent)
    speed = progress.tokens / max(progress.seconds, 1e-9)
    return (
        f"{time.strftime('%H:%M:%S')} step {progress.step} tokens {progress.tokens} loss {recent[-1].loss:.3f} "
        f"mean {mean:.3f} rate {recent[-1].rate:.2f} grad {recent[-1].gradient:.2f} {speed:.0f} tok/s {json.dumps(big)}"
    )


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the training sets")
    parser.add_argument("--out", type=Path, default=Path("training/out"), help="folder for checkpoints")
    parser.add_argument("--tokens", type=int, default=TOKENS, help="length of the run")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--workers", type=int, default=2, help="processes, of one thread each")
    return parser.parse_args()


if __name__ == "__main__":
    main()
