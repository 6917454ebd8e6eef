"""A torch decoder as the scheduler's model: batches in, logits of the read rows out."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial

import numpy as np
import torch
from torch import Tensor

from quail_frames.cost.devices import ORDINARY_CPU
from quail_frames.cost.shapes import Dtype as ShapeDtype
from quail_frames.cost.shapes import ModelShape
from quail_frames.errors import ModelError
from quail_frames.runtime.attention import KvArena, TreeAttention
from quail_frames.runtime.batch import Batch, Float32, Read
from quail_frames.runtime.compiled import DecisionFormat, ModelTraits
from quail_frames.runtime.lanes import Lanes, spans
from quail_frames.runtime.loading import OpenedModel, reads_of_a_token
from quail_frames.runtime.models.attention import Attend
from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.decision_head import DecisionHead
from quail_frames.runtime.models.decoder import Decoder
from quail_frames.runtime.models.load import Dtype, ModelSpec, load_model, resolve_dtype, torch_device
from quail_frames.runtime.models.products import fastest, libraries, speeds
from quail_frames.runtime.named import cpu_kv_bytes, cpu_token_budget
from quail_frames.runtime.native.attention import NativeAttention, attends
from quail_frames.runtime.native.library import usable
from quail_frames.runtime.options import AttentionPath, Library, Products
from quail_frames.runtime.out_of_memory import named_memory_errors
from quail_frames.runtime.tokens.layouts import Markers
from quail_frames.runtime.unified_attention import UnifiedAttention

HEAD_ROWS = 256
"""Rows of the full output head computed at a time, where a read-out needs the whole vocabulary."""
SHAPE_DTYPES: dict[torch.dtype, ShapeDtype] = {torch.float32: "fp32", torch.bfloat16: "bf16", torch.float16: "fp16"}


class TorchModel:
    """Runs batches through a decoder, with attention over a paged arena; on a CPU in lanes, one for each thread."""

    def __init__(
        self,
        decoder: Decoder,
        attention: AttentionPath = "auto",
        head: DecisionHead | None = None,
        lanes: Lanes | None = None,
    ) -> None:
        self._decoder = decoder
        self._head = head
        self._eager = UnifiedAttention if attention == "unified" else TreeAttention
        self._native = usable(decoder.dtype) if attention == "auto" and decoder.device.type == "cpu" else None
        if decoder.device.type == "cpu":
            decoder.lanes = lanes or Lanes()
        self._lanes = decoder.lanes
        self._arena: KvArena | None = None

    def reserve(self, pages: int) -> None:
        """Allocate KV memory; a CPU commits it page by page as it is first written."""
        config = self._decoder.config
        self._arena = KvArena(
            config.num_layers, pages, config.num_kv_heads, config.head_dim, self._decoder.dtype, self._decoder.device
        )

    def clock(self) -> float:
        """Seconds."""
        return time.perf_counter()

    def run(self, batch: Batch) -> list[Float32]:
        """Logits for every read of the batch, in order."""
        with named_memory_errors():
            return self._lanes.call(lambda: self._run(batch))

    @torch.inference_mode()
    def _run(self, batch: Batch) -> list[Float32]:
        assert self._arena is not None
        rows = np.concatenate([read.rows for read in batch.reads]) if batch.reads else np.zeros(0, dtype=np.int64)
        tokens, positions = torch.from_numpy(batch.tokens), torch.from_numpy(batch.positions)
        hidden = self._decoder.hidden(tokens, positions, self._attention(batch, self._arena), torch.from_numpy(rows))
        parts = hidden.split([len(read.rows) for read in batch.reads])
        return [self._read(part, read) for part, read in zip(parts, batch.reads, strict=True)]

    def _attention(self, batch: Batch, arena: KvArena) -> Attend:
        config = self._decoder.config
        if self._native is not None and attends(config.head_dim, batch, config.windows):
            return NativeAttention(self._native, batch, arena, self._lanes)
        return self._eager(batch, arena, config.windows, self._lanes)

    def _read(self, hidden: Tensor, read: Read) -> Float32:
        if read.readout.options:
            assert self._head is not None  # calls that need it are refused where there is none
            states = hidden.unflatten(0, (-1, read.readout.options + 1))
            return self._head.logits(states[:, -1], states[:, :-1]).numpy()
        ids = torch.from_numpy(read.readout.token_ids.astype(np.int64))
        logits = self._decoder.logits(hidden, ids)
        if read.readout.normalize:
            logits = torch.cat([logits, self._log_sums(hidden)[:, None]], dim=1)
        return logits.numpy()

    def _log_sums(self, hidden: Tensor) -> Tensor:
        """Log-sum-exp of each state's logits over the vocabulary."""
        sums = torch.empty(len(hidden), dtype=torch.float32, device=hidden.device)

        def run(own: slice) -> None:
            sums[own] = self._decoder.logits(hidden[own]).logsumexp(dim=1)

        self._lanes.run([partial(run, own) for own in spans(len(hidden), self._lanes.threads, HEAD_ROWS)])
        return sums


def open_torch_model(
    name: str, *, device: str, dtype: Dtype, attention: AttentionPath = "auto", products: Products = "auto"
) -> OpenedModel:
    """Load a model for the CPU and say what the engine needs to plan with it."""
    lanes = Lanes()
    library = chosen(products, resolve_dtype(dtype, torch_device(device)), lanes)
    loaded = load_model(name, device=device, dtype=dtype, library=library)
    decoder, config = loaded.decoder, loaded.decoder.config
    per_token = 2 * config.num_layers * config.num_kv_heads * config.head_dim * decoder.dtype.itemsize
    shape = shape_of(loaded.name, config, decoder.dtype)
    return OpenedModel(
        TorchModel(decoder, attention, loaded.head, lanes),
        loaded.tokenizer,
        traits_of(loaded.spec, loaded.head),
        shape,
        identity=f"{loaded.identity} {decoder.dtype}",
        context_length=loaded.spec.context_length,
        kv_bytes_per_token=per_token,
        default_kv_bytes=cpu_kv_bytes(),
        default_token_budget=cpu_token_budget(decoder.dtype == torch.bfloat16),
        recompute_cost=recompute_cost(config),
        reads_of_a_token=reads_of_a_token(shape, ORDINARY_CPU),
    )


def chosen(products: Products, dtype: torch.dtype, lanes: Lanes) -> Library:
    """The library that multiplies: the one named, or for `auto` the one that a measurement in a lane finds fastest.

    Raises
    ------
    ModelError
        The one named cannot multiply in this type.
    """
    if products == "auto":
        return fastest(lanes.call(lambda: speeds(dtype)))
    usable = list(libraries(dtype))
    if products not in usable:
        raise ModelError(
            f"products={products!r} cannot multiply in {str(dtype).removeprefix('torch.')} here: choose 'auto', "
            f"{', '.join(map(repr, usable))}"
        )
    return products


def recompute_cost(config: ModelConfig) -> Callable[[int], float]:
    """FLOPs of computing n tokens: 2 n weights + 2 n^2 heads head_dim layers (causal attention)."""
    projections = 2 * config.hidden_size * config.head_dim * (config.num_heads + config.num_kv_heads)
    weights = config.num_layers * (projections + 3 * config.hidden_size * config.intermediate_size)
    pairs = 2 * config.num_heads * config.head_dim * config.num_layers
    return lambda tokens: 2.0 * weights * tokens + float(pairs) * tokens * tokens


def traits_of(spec: ModelSpec, head: DecisionHead | None) -> ModelTraits:
    """What spec and decision head say about prompts and read-outs."""
    markers = Markers(spec.before_preamble, spec.after_cue, spec.bos_id)
    scoring = None if head is None and spec.label_scoring == "decision_choice" else spec.label_scoring
    return ModelTraits(
        markers,
        spec.pooling,
        spec.temperature,
        spec.bias,
        spec.choice_temperature,
        spec.letters_temperature,
        decision=None
        if head is None
        else DecisionFormat(spec.masked_options, spec.blocks, head.width, spec.head_questions),
        default_label_scoring=scoring,
    )


def shape_of(name: str, config: ModelConfig, dtype: torch.dtype) -> ModelShape:
    """The model's sizes, which the cost model prices by."""
    return ModelShape(
        name,
        config.num_layers,
        config.hidden_size,
        config.num_heads,
        config.num_kv_heads,
        config.head_dim,
        config.intermediate_size,
        config.vocab_size,
        config.tie_word_embeddings,
        config.qk_norm,
        config.attention_bias,
        norms=4 if config.post_norms else 2,
        window=config.sliding_window if config.sliding_layers else None,
        windowed_layers=sum(config.sliding_layers),
        dtype=SHAPE_DTYPES[dtype],
        matrix_dtype=SHAPE_DTYPES[dtype],
    )
