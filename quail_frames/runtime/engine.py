"""The engine: one model, one KV memory, and the plans run on them."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Unpack

import pyarrow as pa

from quail_frames.errors import ModelError, QuailFramesError
from quail_frames.plan.calls import AiCall
from quail_frames.plan.physical import Chain, PairJoin, PlannedCall
from quail_frames.runtime.backends.opening import open_backend
from quail_frames.runtime.backends.options import Backend, BackendOptions, NativeOptions
from quail_frames.runtime.backends.scheduler import RequestModel, RequestScheduler
from quail_frames.runtime.compiled import CompiledCall, compile_call
from quail_frames.runtime.kv.memory import Memory
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.loading import OpenedModel, open_model
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.operators.chain import ChainOperator
from quail_frames.runtime.operators.known import KnownAnswers
from quail_frames.runtime.operators.pairs import PairOperator
from quail_frames.runtime.options import DEFAULT_MODEL, AttentionPath, Dtype, Products, check_kernels, check_options
from quail_frames.runtime.report import RunReport
from quail_frames.runtime.resolve import resolve_call
from quail_frames.runtime.scheduler import Scheduler


class Engine:
    """A loaded model and its KV memory. Thread-safe; a context manager that frees both.

    Parameters
    ----------
    model
        `"smollm2-135m-decide"` (its base is fetched once), `"smollm2-135m"` (that base), a
        Hugging Face id, a folder of safetensors, an adapter (`.safetensors`), a `.gguf` file, or
        `"oracle"`: deterministic answers without arithmetic, for tests. An opened model is taken
        as it is. With `backend="openai"` the endpoint's name of a model.
    backend
        Who computes: `"native"`, this runtime; `"vllm"`, vLLM in this process; `"openai"`, any
        endpoint that speaks OpenAI's protocol.
    device
        `"cpu"`; `"cuda"` or `"cuda:1"`; `"kernels"`: the code of a GPU on the CPU, for checking
        it where there is none; `"null"`: answers from a hash of the tokens, which times the host
        alone; `"simulated:h100-sxm"`: the same, with `device_seconds` by the roofline of that
        device for a model whose shape is known (`"qwen3-4b-fp8"`).
    dtype
        `"auto"` (bfloat16 where the device is fast at it, else float32), `"float32"`,
        `"bfloat16"`, `"float16"`.
    kv_budget
        Bytes of KV memory. Default: a quarter of what is free, at most 4 GiB on a CPU.
    token_budget
        Most tokens in a batch; a longer prompt is a batch of its own.
    max_length
        Most tokens in a prompt; default: the model's context.
    attention
        `"tree"` reads a shared context once for all its asks, `"unified"` once for each;
        `"auto"` is `"tree"`, on a CPU with AMX by C kernels where there is a C compiler.
    products
        Who multiplies matrices on a CPU: `"torch"`, `"numpy"` (float32 only), `"onednn"`,
        `"amx"` (bfloat16 on a CPU with AMX); `"auto"` measures them for a quarter of a second,
        once in a process, and takes torch unless another is 10% faster, or `"amx"` where it can.
        Which one it is changes the last digits of a score: name one to pin them.
    kernels
        Holds operations of a GPU to one of their implementations, before `QUAIL_FRAMES_KERNELS`:
        `"torch"`, `"triton,block_scaled_matmul=torch"`, or a mapping of operations to names;
        docs/kernels.md lists them, and `quail-frames doctor` those chosen.
    **options
        Options of the other backends: `quail_frames.runtime.backends.options.BackendOptions`.

    Raises
    ------
    ModelError
        The model cannot be found or read, or an option is of no use.

    Examples
    --------
    >>> with Engine("oracle") as engine:
    ...     engine.model_name
    'oracle'
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | OpenedModel = DEFAULT_MODEL,
        *,
        backend: Backend = "native",
        device: str = "cpu",
        dtype: Dtype = "auto",
        kv_budget: int | None = None,
        token_budget: int | None = None,
        max_length: int | None = None,
        attention: AttentionPath = "auto",
        products: Products = "auto",
        kernels: str | Mapping[str, str] | None = None,
        **options: Unpack[BackendOptions],
    ) -> None:
        opened = model if isinstance(model, OpenedModel) else None
        self.model_name = check_options(
            opened.identity if opened is not None else model,
            device=device,
            dtype=dtype,
            kv_budget=kv_budget,
            token_budget=token_budget,
            max_length=max_length,
            attention=attention,
            products=products,
        )
        pins = check_kernels(kernels, device if backend == "native" else None)
        if opened is None:
            native = NativeOptions(device, dtype, kv_budget, token_budget, max_length, attention, products, pins)
            opened = self._opened(self.model_name, backend, native, options)
        self.device = device if backend == "native" and self.model_name != "oracle" else "null"
        self.attention = "unified" if attention == "unified" else "tree"
        kv_budget = kv_budget if backend == "native" else None  # other backends keep KV of their own
        self.identity = opened.identity
        self.tokenizer = opened.tokenizer
        self.traits = opened.traits
        self.shape = opened.shape
        self.max_length = min(max_length or opened.context_length, opened.context_length)
        self._model = opened.model
        budget = opened.default_kv_bytes if kv_budget is None else kv_budget
        self.memory = self._reserved(budget // (opened.kv_bytes_per_token * PAGE), opened)
        self._known = KnownAnswers()
        self._process = os.getpid()
        self._lock = threading.RLock()
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="quail-frames")
        self.token_budget = token_budget or opened.default_token_budget
        self._scheduler: Scheduler | RequestScheduler
        if isinstance(self._model, RequestModel):
            self._scheduler = RequestScheduler(self._model, self.memory, self._lock)
        else:
            self._scheduler = Scheduler(
                self._model, self.memory, self.token_budget, self._worker, self._lock, self.shape.vocabulary
            )
        self.closed = False

    @staticmethod
    def _opened(model: str, backend: Backend, native: NativeOptions, options: BackendOptions) -> OpenedModel:
        if backend == "native" and not options:
            names = ("device", "dtype", "attention", "products", "kernels")
            chosen: Any = {name: getattr(native, name) for name in names}
            return open_model(model, **chosen)
        return open_backend(backend, model, native, options)

    @staticmethod
    def _reserved(pages: int, opened: OpenedModel) -> Memory:
        """KV memory of so many pages, allocated."""
        try:
            memory = Memory(pages, opened.recompute_cost, opened.share_from, opened.reads_of_a_token)
            opened.model.reserve(pages)
        except (MemoryError, RuntimeError, ValueError) as error:  # numpy's, torch's, and numpy's of absurd sizes
            asked = pages * PAGE * opened.kv_bytes_per_token
            raise ModelError(
                f"{asked:,} bytes of KV memory cannot be allocated ({error}): give a smaller kv_budget"
            ) from error
        return memory

    def __reduce__(self) -> Any:
        raise TypeError("an engine belongs to its process: open one in the other process with qf.Engine(...)")

    def __enter__(self) -> Engine:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Free the model and its memory; further runs raise."""
        if not self.closed:
            self.closed = True
            self._worker.shutdown(wait=True)
            if isinstance(self._model, RequestModel):
                self._model.close()
            self._model = self._scheduler = None  # type: ignore[assignment]

    def resolve(self, call: AiCall, inputs: tuple[int, ...], anchors: tuple[int, ...] = ()) -> PlannedCall:
        """The call with `auto` layout and scoring made concrete, from the call and the model alone.

        `inputs` number the operator's columns for each slot; `anchors` are the slots of the
        anchor side where the call is asked of pairs.

        Raises
        ------
        CallError
            An option that the call's columns or labels, or this model, rule out.
        """
        return resolve_call(call, inputs, anchors, self.tokenizer, self.traits, self.shape)

    def compile(self, planned: PlannedCall) -> CompiledCall:
        """The call's prompt pieces and read-out for this model."""
        return compile_call(planned, self.tokenizer, self.traits)

    def run(
        self, plan: Chain, batches: Iterable[pa.RecordBatch], report: RunReport | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Run a chain over record batches of inputs; see `quail_frames.plan.physical` for both forms.

        Output batches come in row order as soon as their rows are decided. Closing the
        iterator cancels the run and frees its memory.

        Raises
        ------
        ContextOverflowError
            A prompt is longer than `max_length` and its call says `overflow="error"`; the
            rows before it have been yielded.
        """
        self._check_open()
        report = RunReport() if report is None else report
        calls = [self.compile(planned) for planned in plan.calls]
        operator = ChainOperator(plan, calls, self.tokenizer, self.memory, self.max_length, report, self._known)
        return self._scheduler.run(operator, iter(batches), report)

    def join(
        self,
        plan: PairJoin,
        anchors: Iterable[AnchorBatch],
        partners: pa.RecordBatch,
        report: RunReport | None = None,
        later: Sequence[pa.RecordBatch] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Ask a call of pairs; see `quail_frames.runtime.operators.pairs` for the output.

        `later`: partners that later joins with this call (`remember`) will ask the anchors about; what their texts
        and those of `partners` begin with alike is then computed once.

        Raises
        ------
        ContextOverflowError
            A pair's prompt is longer than `max_length` and the call says `overflow="error"`.
        """
        self._check_open()
        report = RunReport() if report is None else report
        call = self.compile(plan.call)
        operator = PairOperator(
            plan, call, partners, self.tokenizer, self.memory, self.max_length, report, self._known, later
        )
        return self._scheduler.run(operator, iter(anchors), report)

    def end(self, report: RunReport) -> None:
        """The query that this report counts is over: free the documents that its plans retained, and its answers."""
        with self._lock:
            self.memory.end(report)
            self._known.end(report)

    def _check_open(self) -> None:
        if self.closed:
            raise QuailFramesError(f"this engine ({self.model_name}) is closed; open another with qf.Engine(...)")
        if self._process != os.getpid():
            raise QuailFramesError(
                f"this engine ({self.model_name}) was opened before the process was forked, and its threads did not "
                "come along: open one in the new process, which multiprocessing.get_context('spawn') starts afresh"
            )
