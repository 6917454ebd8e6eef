"""Kernels as the scheduler's model: a batch is planned and copied while the one before it computes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from types import MappingProxyType

import numpy as np
import torch
from torch import Tensor

from quail_frames import kernels
from quail_frames.runtime.attention import KvArena
from quail_frames.runtime.batch import Batch, BestColumn, Float32, ReadoutSpec, TrueFalseMargin
from quail_frames.runtime.device.attention import KernelAttention
from quail_frames.runtime.device.decoder import KernelDecoder
from quail_frames.runtime.device.plan import DevicePlan, plan_batch
from quail_frames.runtime.device.staging import Staged, Stager
from quail_frames.runtime.models.decision_head import DecisionHead
from quail_frames.runtime.out_of_memory import named_memory_errors

NO_PINS: Mapping[str, str] = MappingProxyType({})


class DeviceModel:
    """Runs batches through a decoder of kernels, with KV in an arena on its device; `pins` hold its operations."""

    def __init__(
        self,
        decoder: KernelDecoder,
        unified: bool = False,
        head: DecisionHead | None = None,
        pins: Mapping[str, str] = NO_PINS,
    ) -> None:
        self._decoder = decoder
        self._head = head
        self._unified = unified
        self._pins = pins
        self._stager = Stager(decoder.device)
        self._arena: KvArena | None = None

    def reserve(self, pages: int) -> None:
        """Allocate KV memory on the device."""
        config = self._decoder.config
        shape = (config.num_layers, pages, config.num_kv_heads, config.head_dim)
        self._arena = KvArena(*shape, self._decoder.dtype, self._decoder.device)

    def clock(self) -> float:
        """Seconds."""
        return time.perf_counter()

    def prepare(self, batch: Batch) -> Callable[[], list[Float32]]:
        """Plan the batch and begin its copy to the device; what is returned runs it and gives `run`'s answers."""
        with self._on_device():
            plan = plan_batch(batch, self._unified)
            return partial(self._run, plan, self._stager.stage(plan.arrays))

    def run(self, batch: Batch) -> list[Float32]:
        """Logits for every read of the batch, in order."""
        return self.prepare(batch)()

    @torch.inference_mode()
    def _run(self, plan: DevicePlan, staged: Staged) -> list[Float32]:
        assert self._arena is not None
        with self._on_device(), kernels.pinned(self._pins), named_memory_errors():
            tensors = staged.tensors()
            attention = KernelAttention(plan, tensors, self._arena, self._decoder.config.windows, self._unified)
            hidden = self._decoder.hidden(tensors["tokens"], tensors["positions"], attention, tensors["rows"])
            return _to_host(self._read(hidden, tensors["ids"], plan))

    def _read(self, hidden: Tensor, ids: Tensor, plan: DevicePlan) -> list[Tensor]:
        """Each read-out's answers where one number says them, else its logits."""
        answers, row, first = [], 0, 0
        for rows, spec in plan.reads:
            logits = self._logits(hidden[row : row + rows], ids[first : first + len(spec.token_ids)], spec)
            answers.append(logits if spec.answer is None else answer_of(logits, spec.answer))
            row, first = row + rows, first + len(spec.token_ids)
        return answers

    def _logits(self, states: Tensor, ids: Tensor, spec: ReadoutSpec) -> Tensor:
        """Logits at these states, the log-sum-exp as a last column where it is wanted."""
        if spec.options:
            assert self._head is not None  # calls that need it are refused where there is none
            by_ask = states.unflatten(0, (-1, spec.options + 1))
            return self._head.logits(by_ask[:, -1], by_ask[:, :-1])
        logits = self._decoder.logits(states, ids)
        return torch.cat([logits, self._decoder.normalizer(states)[:, None]], dim=1) if spec.normalize else logits

    def _on_device(self) -> AbstractContextManager[object]:
        """Streams and Triton's launches go to the thread's current device."""
        device = self._decoder.device
        return torch.cuda.device(device) if device.type == "cuda" else nullcontext()


def answer_of(logits: Tensor, answer: TrueFalseMargin | BestColumn) -> Tensor:
    """The answers of these rows of logits as one float32 column, worked out where the logits are.

    >>> answer_of(torch.tensor([[1.0, 3.0, 2.0]]), BestColumn()).tolist()
    [[1.0]]
    """
    if isinstance(answer, BestColumn):
        return kernels.read_best(logits)[:, None].to(torch.float32)
    margins = kernels.true_false_margins(logits, answer.true_tokens, answer.pooling, answer.temperature, answer.bias)
    return margins[:, None]


def _to_host(answers: list[Tensor]) -> list[Float32]:
    """All answers in one copy, the only wait of a batch."""
    if not answers:
        return []
    flat = torch.cat([answer.reshape(-1) for answer in answers]).cpu().numpy()
    ends = np.cumsum([answer.numel() for answer in answers])[:-1]
    return [part.reshape(answer.shape) for part, answer in zip(np.split(flat, ends), answers, strict=True)]
