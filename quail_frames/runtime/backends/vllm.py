"""vLLM in this process' environment: every ask is one request of one token, whose log-probabilities are read.

Prompts are our token ids, so vLLM's model is asked exactly what the native runtime's is. Its
prefix cache does what our contexts do; asks of one document come one after the other, so
that it finds them.
"""

from __future__ import annotations

import itertools
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from quail_frames.cost.shapes import ModelShape
from quail_frames.errors import ModelError
from quail_frames.runtime.backends.asking import Answered, Reply, WholeAsk
from quail_frames.runtime.backends.options import NativeOptions
from quail_frames.runtime.backends.scheduler import RequestModel
from quail_frames.runtime.batch import Float32, Int32
from quail_frames.runtime.loading import OpenedModel
from quail_frames.runtime.models.export import huggingface_folder
from quail_frames.runtime.models.load import ModelSpec, decision_options
from quail_frames.runtime.models.safetensors import read_json
from quail_frames.runtime.scheduler import closed_under_way
from quail_frames.runtime.tokens.tokenizer import Tokenizer
from quail_frames.runtime.torch_model import traits_of

MOST_IDS = 128
"""Log-probabilities of this many named tokens can be read in one request."""
TOKENS_UNDER_WAY = 1 << 14
"""New tokens asked for at once: two of vLLM's largest batches."""
MEMORY = 64 << 20
"""Bytes of the token ids that rows in work may hold."""


@dataclass(eq=False)
class Asked:
    """An ask under way. `rows` are its log-probabilities, [reads, ids]; `left` counts its requests."""

    number: int
    ask: WholeAsk
    answered: Answered
    rows: Float32
    left: int
    fresh: int = 0
    reused: int = 0


@dataclass(frozen=True, eq=False)
class Part:
    """One request of an ask: a row, and some of its columns."""

    asked: Asked
    row: int
    columns: slice


@dataclass(frozen=True, eq=False)
class Work:
    """Something for the thread that owns vLLM: asks to begin, or asks to give up."""

    asks: tuple[Asked, ...] = ()
    cancel: tuple[Asked, ...] = ()
    close: bool = False


class VllmAsker:
    """Steps vLLM's offline engine in a thread of its own; asks join and leave between steps."""

    most_asks = 2048

    def __init__(self, start: Callable[[], Pump], most_tokens: int, staged: bool) -> None:
        self.most_tokens = most_tokens
        self.staged = staged
        if staged:
            self.most_asks = self.most_tokens = 1 << 40
        self._work: SimpleQueue[Work] = SimpleQueue()
        started: Future[int] = Future()
        self._thread = threading.Thread(
            target=_serve, args=(start, self._work, started), name="quail-frames-vllm", daemon=True
        )
        self._thread.start()
        self.max_model_len = started.result()

    def ask(self, asks: Sequence[WholeAsk], answered: Answered) -> Callable[[], None]:
        """Begin to ask."""
        begun = tuple(
            Asked(number, ask, answered, np.empty((len(ask.prompts), len(ask.readout.token_ids)), np.float32), 0)
            for number, ask in enumerate(asks)
        )
        self._work.put(Work(asks=begun))
        return lambda: self._work.put(Work(cancel=begun))

    def close(self) -> None:
        """End vLLM."""
        self._work.put(Work(close=True))
        self._thread.join()


def _serve(start: Callable[[], Pump], work: SimpleQueue[Work], started: Future[int]) -> None:
    """The thread that owns vLLM, from its start to its end."""
    try:
        pump = start()
    except Exception as error:
        started.set_exception(ModelError(f"vLLM does not start: {error}"))
        return
    started.set_result(int(pump.engine.model_config.max_model_len))
    working = True
    while working:
        try:
            working = pump.take(work)
            pump.step()
        except Exception as error:  # whoever asks hears of it
            pump.fail(ModelError(f"vLLM has stopped: {error}"))


@dataclass(eq=False)
class Pump:
    """vLLM's engine and the requests in it."""

    engine: Any
    parameters: Callable[[Sequence[int]], Any]
    parts: dict[str, Part] = field(default_factory=dict)
    numbers: itertools.count[int] = field(default_factory=itertools.count)

    @staticmethod
    def start(arguments: Mapping[str, Any]) -> Pump:
        """Load the model."""
        os.environ.setdefault("VLLM_LOGGING_LEVEL", "WARNING")
        os.environ.setdefault("VLLM_NO_USAGE_STATS", "1")
        import vllm
        from vllm.sampling_params import RequestOutputKind

        def parameters(ids: Sequence[int]) -> Any:
            return vllm.SamplingParams(
                max_tokens=1,
                temperature=0,
                detokenize=False,
                logprob_token_ids=list(ids),
                output_kind=RequestOutputKind.FINAL_ONLY,
            )

        try:
            parameters([0])
        except TypeError:
            raise ModelError(
                f"vLLM {vllm.__version__} cannot read log-probabilities of named tokens; a newer one can (0.32 does)"
            ) from None
        return Pump(vllm.LLM(**arguments).llm_engine, parameters)

    def take(self, work: SimpleQueue[Work]) -> bool:
        """Take in what has come, waiting for it where nothing is under way; False when it is time to end."""
        wait = not self.parts
        while True:
            try:
                item = work.get(block=wait)
            except Empty:
                return True
            if item.close:
                self.fail(closed_under_way())
                return False
            for asked in item.asks:
                self.begin(asked)
            self.abort({id(asked) for asked in item.cancel})
            wait = not self.parts

    def begin(self, asked: Asked) -> None:
        """Put an ask's requests into vLLM: one a row, more where many tokens are read."""
        ids = asked.ask.readout.token_ids
        starts = range(0, len(ids), MOST_IDS)
        asked.left = len(asked.ask.prompts) * len(starts)
        for row, prompt in enumerate(asked.ask.prompts):
            for start in starts:
                columns = slice(start, start + MOST_IDS)
                self._add(Part(asked, row, columns), prompt, ids[columns])

    def _add(self, part: Part, prompt: Int32, ids: Int32) -> None:
        name = str(next(self.numbers))
        try:
            self.engine.add_request(name, {"prompt_token_ids": prompt.tolist()}, self.parameters(ids.tolist()))
        except Exception as error:  # a prompt that it refuses, or an engine that is dead
            part.asked.answered(part.asked.number, ModelError(f"vLLM does not take a prompt: {error}"))
        else:
            self.parts[name] = part

    def abort(self, asked: set[int]) -> None:
        """Take the requests of these asks out of vLLM."""
        names = [name for name, part in self.parts.items() if id(part.asked) in asked] if asked else []
        if names:
            self.engine.abort_request(names)
            for name in names:
                del self.parts[name]

    def step(self) -> None:
        """One of vLLM's batches."""
        for output in self.engine.step() if self.parts else ():
            part = self.parts.pop(output.request_id, None)
            if part is not None:
                _read(output, part)

    def fail(self, error: Exception) -> None:
        """Give up all that is under way."""
        for asked in {id(part.asked): part.asked for part in self.parts.values()}.values():
            asked.answered(asked.number, error)
        self.parts.clear()


def _read(output: Any, part: Part) -> None:
    asked, readout = part.asked, part.asked.ask.readout
    likely = output.outputs[0].logprobs[0]
    asked.rows[part.row, part.columns] = [likely[token].logprob for token in readout.token_ids[part.columns].tolist()]
    cached = output.num_cached_tokens or 0
    asked.fresh += len(output.prompt_token_ids) - cached
    asked.reused += cached
    asked.left -= 1
    if asked.left == 0:
        rows = asked.rows
        if readout.normalize:  # they are normalized already
            rows = np.concatenate([rows, np.zeros((len(rows), 1), np.float32)], axis=1)
        asked.answered(asked.number, Reply(rows, fresh=asked.fresh, reused=asked.reused))


def open_vllm(model: str, native: NativeOptions, options: Mapping[str, Any]) -> OpenedModel:
    """A model in vLLM.

    Raises
    ------
    ModelError
        The model is not found or vLLM does not take it, or an option is wrong.
    """
    schedule = options.get("schedule", "pipelined")
    folder = huggingface_folder(model)
    config = read_json(folder / "config.json")
    tokenizer = Tokenizer.from_folder(folder, config.get("bos_token_id"))
    spec = ModelSpec(0, tokenizer.bos_id, **decision_options(folder))
    arguments = _arguments(str(folder), native, options.get("engine_args", {}))
    asker = VllmAsker(lambda: Pump.start(arguments), native.token_budget or TOKENS_UNDER_WAY, schedule == "stages")
    return OpenedModel(
        RequestModel(asker),
        tokenizer,
        traits_of(spec, None),
        shape_of(config),
        identity=f"vllm {model} {arguments['dtype']}",
        context_length=asker.max_model_len - 1,
        kv_bytes_per_token=4,
        default_kv_bytes=MEMORY,
        default_token_budget=TOKENS_UNDER_WAY,
        share_from=1 << 12,
    )


def _arguments(folder: str, native: NativeOptions, further: Mapping[str, Any]) -> dict[str, Any]:
    """Of `vllm.LLM`."""
    arguments: dict[str, Any] = {
        "model": folder,
        "dtype": native.dtype,
        "skip_tokenizer_init": True,
        "enable_prefix_caching": True,
        "seed": 0,
        "disable_log_stats": True,
    }
    if native.max_length is not None:
        arguments["max_model_len"] = native.max_length + 1
    if native.kv_budget is not None:
        arguments["kv_cache_memory_bytes"] = native.kv_budget
    return arguments | dict(further)


def shape_of(config: Mapping[str, Any]) -> ModelShape:
    """The shape by which `auto` scores labels, from the fields that nearly every config.json has."""
    text = config.get("text_config", config)
    hidden, heads = int(text["hidden_size"]), int(text["num_attention_heads"])
    return ModelShape(
        str(text.get("model_type", "decoder")),
        int(text["num_hidden_layers"]),
        hidden,
        heads,
        int(text.get("num_key_value_heads") or heads),
        int(text.get("head_dim") or hidden // heads),
        int(text.get("intermediate_size") or 4 * hidden),
        int(text["vocab_size"]),
        bool(text.get("tie_word_embeddings", False)),
    )
