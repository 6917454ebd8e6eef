"""The same texts and questions through a model with its adapter and through its base, chunk by chunk in turn.

An adapter is merged when it is loaded, so both should compute equally many tokens a second.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import dataclass

import numpy as np
import torch

from benchmarks import data
from benchmarks.common import Machine, model_options, show, write
from benchmarks.filter_chain import QUESTIONS, TOKENS, Side, ask_ours
from benchmarks.prompts import filter_call
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.tokens.ragged import Ragged


@dataclass(frozen=True)
class Result:
    """What each side did, and the median over chunks of the base's processor time over the adapter's."""

    adapter: Side
    base: Side
    ratio: float


def measure(adapter: Engine, base: Engine, rows: Ragged, chunks: int) -> Result:
    """Both engines over all rows, taking turns; who begins alternates."""
    engines, sides, ratios = (adapter, base), (Side(), Side()), []
    calls = [[filter_call(engine, question) for question in QUESTIONS] for engine in engines]
    for number, chosen in enumerate(np.array_split(np.arange(len(rows)), chunks)):
        spent = [0.0, 0.0]
        for which in (0, 1) if number % 2 == 0 else (1, 0):
            _, tokens, took = ask_ours(engines[which], calls[which], rows.take(chosen))
            sides[which].add(tokens, took)
            spent[which] = took.processor
        ratios.append(spent[1] / spent[0])
    return Result(*sides, float(np.median(ratios)))


def run(options: Namespace) -> Result:
    """Load both models, warm them up, measure."""
    torch.set_num_threads(options.threads)
    with Engine(options.model, dtype=options.dtype) as adapter, Engine(options.base, dtype=options.dtype) as base:
        texts = data.cut_to(data.texts("reviews"), TOKENS, base.tokenizer)[: options.texts]
        rows = base.tokenizer.encode(texts)
        measure(adapter, base, rows.take(np.arange(2)), chunks=1)
        return measure(adapter, base, rows, options.chunks)


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = model_options(__doc__)
    parser.set_defaults(model="smollm2-135m-decide")
    parser.add_argument("--base", default="smollm2-135m", help="the model without its adapter (default: %(default)s)")
    parser.add_argument("--texts", type=int, default=80, help="how many reviews (default: %(default)s)")
    parser.add_argument("--chunks", type=int, default=16, help="turns that each side takes (default: %(default)s)")
    options = parser.parse_args(arguments)
    machine = Machine.here()
    result = run(options)
    sides = {options.model: result.adapter, options.base: result.base}
    rows = [
        [name, side.tokens, side.tokens / side.spent.wall, side.tokens / side.spent.processor]
        for name, side in sides.items()
    ]
    caption = f"speed with the adapter / without: {result.ratio:.3f} (median of turns)\n{machine.line()}"
    show("An adapter's cost", ["", "tokens", "tokens/s", "tokens/processor s"], rows, caption)
    figures = {name: {"tokens": side.tokens, **vars(side.spent)} for name, side in sides.items()}
    write(options.json, {"ratio": result.ratio, "dtype": options.dtype, "sides": figures}, machine)


if __name__ == "__main__":
    main()
