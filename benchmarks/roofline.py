"""How much of a query is matrix products: their time alone, replayed, over the time of the query.

The batches that a query ran are recorded (tokens and read rows of each), then every layer's products are run again
at these shapes on the same weights, in turn with the query. Attention and all else is what lies between the two.
"""

from __future__ import annotations

import time
from argparse import Namespace
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial

import torch
from torch import Tensor

from benchmarks import data
from benchmarks.common import Machine, model_options, show, write
from benchmarks.filter_chain import QUESTIONS
from benchmarks.peers.shapes import abstracts, mentions, short_terms, sized
from benchmarks.prompts import filter_call, token_batch
from quail_frames.plan.conditions import Answer
from quail_frames.plan.physical import Chain, PairJoin
from quail_frames.runtime.batch import Batch, Float32
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.decoder import Decoder
from quail_frames.runtime.models.weights import LayerWeights
from quail_frames.runtime.operators.candidates import AnchorBatch

TOKENS = 300
REPEATS = 3
PROJECTIONS = ("qkv", "output", "gate_up", "down")

Query = Callable[[], None]


@dataclass(frozen=True)
class BatchShape:
    """Tokens of a batch, and how many of them are read."""

    tokens: int
    reads: int


@dataclass(frozen=True)
class Share:
    """Seconds of the products and of the query, over all repetitions."""

    products_seconds: float
    query_seconds: float
    tokens: int
    batches: int

    @property
    def share(self) -> float:
        """Products over query."""
        return self.products_seconds / self.query_seconds


class Recorder:
    """Notes the shape of every batch that the engine's model runs."""

    def __init__(self, engine: Engine) -> None:
        self.shapes: list[BatchShape] = []
        self._run = engine._model.run
        engine._model.run = self  # type: ignore[method-assign]

    def __call__(self, batch: Batch) -> list[Float32]:
        self.shapes.append(BatchShape(len(batch), sum(len(read.rows) for read in batch.reads)))
        return self._run(batch)

    def take(self) -> list[BatchShape]:
        """The shapes since the last call."""
        shapes, self.shapes = self.shapes, []
        return shapes


def products(decoder: Decoder, shapes: Sequence[BatchShape], inputs: Mapping[str, Tensor]) -> None:
    """Every layer's matrix products of these batches; the last layer's only for the rows that are read."""
    decoder.lanes.call(partial(_products, decoder, shapes, inputs))


@torch.inference_mode()
def _products(decoder: Decoder, shapes: Sequence[BatchShape], inputs: Mapping[str, Tensor]) -> None:
    layers, product, lanes = decoder.weights.layers, decoder.shape.product, decoder.lanes

    def run(layer: LayerWeights[Tensor], names: Sequence[str], own: slice) -> None:
        for name in names:
            product(inputs[name][own], getattr(layer, name))

    def share_out(layer: LayerWeights[Tensor], names: Sequence[str], rows: int) -> None:
        lanes.run([partial(run, layer, names, own) for own in lanes.spans(rows, decoder.steps.task_rows)])

    for shape in shapes:
        for layer in layers[:-1]:
            share_out(layer, PROJECTIONS, shape.tokens)
        share_out(layers[-1], PROJECTIONS[:1], shape.tokens)
        share_out(layers[-1], PROJECTIONS[1:], shape.reads)


def random_inputs(decoder: Decoder, shapes: Sequence[BatchShape]) -> dict[str, Tensor]:
    """Rows enough for the largest batch, for each projection."""
    rows, config = max(shape.tokens for shape in shapes), decoder.config
    queries = config.num_heads * config.head_dim
    widths = (config.hidden_size, queries, config.hidden_size, config.intermediate_size)
    drawn = {width: torch.randn(rows, width, dtype=decoder.dtype) for width in widths}
    return {name: drawn[width] for name, width in zip(PROJECTIONS, widths, strict=True)}


def filter_query(engine: Engine, scale: float) -> Query:
    """One filter over reviews of about 300 tokens."""
    texts = data.cut_to(data.texts("reviews"), TOKENS, engine.tokenizer)[: sized(40, scale)]
    rows = token_batch("text", engine.tokenizer.encode(texts))
    plan = Chain(("text",), (), (filter_call(engine, QUESTIONS[0]),), (0,), Answer(0), ())
    return lambda: _drain(engine.run(plan, [rows]))


def join_query(engine: Engine, scale: float) -> Query:
    """Abstracts of some 300 tokens with 60 short terms each."""
    plan = PairJoin(("anchor",), ("partner",), mentions(engine))
    anchors = AnchorBatch(token_batch("anchor", abstracts(engine, sized(10, scale))))
    terms = token_batch("partner", short_terms(engine, 60))
    return lambda: _drain(engine.join(plan, [anchors], terms))


def _drain(batches: object) -> None:
    list(batches)  # type: ignore[call-overload]


def measure(engine: Engine, decoder: Decoder, recorder: Recorder, query: Query, repeats: int = REPEATS) -> Share:
    """The query and its products in turn, `repeats` times; once before to warm up."""
    query()
    shapes = recorder.take()
    inputs = random_inputs(decoder, shapes)
    products(decoder, shapes[:1], inputs)
    query_seconds, products_seconds = 0.0, 0.0
    for _ in range(repeats):
        query_seconds += timed(query)
        shapes = recorder.take()
        products_seconds += timed(partial(products, decoder, shapes, inputs))
    return Share(products_seconds, query_seconds, sum(shape.tokens for shape in shapes), len(shapes))


def timed(work: Query) -> float:
    """Seconds."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def run(options: Namespace) -> dict[str, Share]:
    """Both queries."""
    torch.set_num_threads(options.threads)
    with Engine(options.model, dtype=options.dtype) as engine:
        decoder, recorder = engine._model._decoder, Recorder(engine)  # type: ignore[attr-defined]
        queries = {"filter": filter_query(engine, options.scale), "join": join_query(engine, options.scale)}
        return {name: measure(engine, decoder, recorder, query) for name, query in queries.items()}


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = model_options(__doc__)
    parser.add_argument("--scale", type=float, default=1.0, help="size of the queries (default: %(default)s)")
    options = parser.parse_args(arguments)
    machine = Machine.here()
    found = run(options)
    rows = [
        [
            name,
            share.products_seconds / REPEATS,
            share.query_seconds / REPEATS,
            share.share,
            share.tokens,
            share.batches,
        ]
        for name, share in found.items()
    ]
    caption = f"{options.model}, {options.dtype}, {options.threads} threads; {machine.line()}"
    columns = ["query", "products s", "query s", "share", "tokens", "batches"]
    show("Matrix products alone / the query", columns, rows, caption)
    settings = {"model": options.model, "dtype": options.dtype, "threads": options.threads, "scale": options.scale}
    shares = {name: share.share for name, share in found.items()}
    write(
        options.json, {**shares, "details": {name: asdict(share) for name, share in found.items()}, **settings}, machine
    )


if __name__ == "__main__":
    main()
