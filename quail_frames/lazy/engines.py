"""The process's default engine: one for a model and its options, shared by every query and thread."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, Protocol, Unpack
from weakref import WeakValueDictionary

import pyarrow as pa

from quail_frames.errors import QuailFramesError
from quail_frames.plan.calls import AiCall
from quail_frames.plan.physical import Chain, PairJoin, PlannedCall
from quail_frames.runtime.backends.options import Backend, BackendOptions, NativeOptions, check_backend
from quail_frames.runtime.operators.candidates import AnchorBatch
from quail_frames.runtime.options import DEFAULT_MODEL, check_devices, check_kernels, check_options


class Runner(Protocol):
    """What the lazy layer needs of an engine."""

    @property
    def closed(self) -> bool:
        """Further runs raise."""
        ...

    def resolve(self, call: AiCall, inputs: tuple[int, ...], anchors: tuple[int, ...] = ()) -> PlannedCall:
        """The call with layout and scoring chosen for this engine's model."""
        ...

    def run(self, plan: Chain, batches: Iterable[pa.RecordBatch], report: Any = None) -> Iterator[pa.RecordBatch]:
        """Answers in row order; see `quail_frames.plan.physical`."""
        ...

    def join(
        self,
        plan: PairJoin,
        anchors: Iterable[AnchorBatch],
        partners: pa.RecordBatch,
        report: Any = None,
        later: Sequence[pa.RecordBatch] = (),
    ) -> Iterator[pa.RecordBatch]:
        """Pairs in anchor order; see `quail_frames.runtime.operators.pairs`."""
        ...

    def end(self, report: Any) -> None:
        """The query that this report counts is over: free what its plans retained."""
        ...

    def close(self) -> None:
        """Give back the model's memory."""
        ...


@dataclass(frozen=True)
class EngineOptions:
    """What `configure` was told; equal options share one engine."""

    model: str = DEFAULT_MODEL
    device: str = "cpu"
    dtype: str = "auto"
    kv_budget: int | None = None
    token_budget: int | None = None
    max_length: int | None = None
    attention: str = "auto"
    products: str = "auto"
    kernels: str | None = None
    devices: tuple[str, ...] | Literal["all"] | None = None
    backend: str = "native"
    backend_options: Mapping[str, Any] = field(default_factory=dict, repr=False, hash=False)


_lock = threading.RLock()
_options = EngineOptions()
_current: Runner | None = None
_used = False
"""Whether `use_engine` chose the current engine."""
_engines: WeakValueDictionary[EngineOptions, Runner] = WeakValueDictionary()


def configure(
    model: str | os.PathLike[str] = DEFAULT_MODEL,
    *,
    backend: Backend = "native",
    device: str = "cpu",
    dtype: str = "auto",
    kv_budget: int | None = None,
    token_budget: int | None = None,
    max_length: int | None = None,
    attention: str = "auto",
    products: str = "auto",
    kernels: str | Mapping[str, str] | None = None,
    devices: Literal["all"] | Sequence[str] | None = None,
    **options: Unpack[BackendOptions],
) -> None:
    """Choose the engine of every query that names none. Loads nothing yet.

    Parameters
    ----------
    model
        `smollm2-135m-decide` (the default), `smollm2-135m` (its base as published), a Hugging
        Face id, a folder with safetensors, an adapter (`.safetensors`), a `.gguf` file, or
        `oracle`, which answers from a hash and needs no download. With `backend="openai"` the
        endpoint's name of a model.
    backend
        Who computes: `native`, this library's runtime; `vllm`; or `openai`, any endpoint that
        speaks OpenAI's protocol.
    device
        `cpu`, `cuda` or `cuda:1`; `kernels`, `null` and `simulated:...` as in `Engine`.
    dtype
        Type of the weights: `auto`, `float32`, `bfloat16` or `float16`.
    kv_budget
        Most bytes of KV memory; None lets the engine choose.
    token_budget
        Most tokens of one batch; None lets the engine choose.
    max_length
        Longest prompt in tokens; None is the model's own limit.
    attention, products
        How a shared context is read, and who multiplies matrices on a CPU; as in `Engine`.
    kernels
        Which implementation runs an operation on a GPU; as in `Engine`.
    devices
        Several devices of this machine instead of one: `"all"` its GPUs, or their names; each
        runs in a process of its own, as in `EngineGroup`.
    **options
        Of the backend: `base_url`, `api_key`, `concurrency` and others; docs/backends.md has them all.

    Raises
    ------
    ModelError
        An option is of no use, or the backend does not know it. Whether the model is there is seen on first use.

    Examples
    --------
    >>> import quail_frames as qf
    >>> qf.configure(model="oracle")
    """
    global _options, _current, _used
    budgets = {"kv_budget": kv_budget, "token_budget": token_budget, "max_length": max_length}
    name = check_options(model, device=device, dtype=dtype, **budgets, attention=attention, products=products)
    several = check_devices(devices, device)
    where = device if several is None else "cuda" if several == "all" else several[0]
    pins = check_kernels(kernels, where if backend == "native" else None)
    native = NativeOptions(device, dtype, kv_budget, token_budget, max_length, attention, products, pins)
    check_backend(backend, name, native, options)
    with _lock:
        _options = EngineOptions(
            name,
            device,
            dtype,
            **budgets,
            attention=attention,
            products=products,
            kernels=pins,
            devices=several,
            backend=backend,
            backend_options=options,
        )
        _current, _used = _engines.get(_options), False


def default_engine() -> Runner:
    """The engine of the current configuration, made on first use.

    It lives as long as it is the default or a query uses it; `configure` with other
    options, or the end of the process, lets it go.
    """
    global _current
    with _lock:
        if _current is not None and _current.closed and _used:
            raise QuailFramesError(
                "the engine that use_engine made the default is closed: choose another with use_engine or configure"
            )
        if _current is None or _current.closed:
            _current = _engines.get(_options)
        if _current is None or _current.closed:
            _current = _engines[_options] = _make_engine(_options)
        return _current


def current() -> Runner | EngineOptions:
    """The default engine where it is open, else what `configure` was told; opens nothing."""
    with _lock:
        return _options if _current is None or _current.closed else _current


def use_engine(engine: Runner) -> None:
    """Make this engine the default, until `configure` or `use_engine` chooses another."""
    global _current, _used
    if engine.closed:
        raise QuailFramesError("a closed engine cannot be the default: open another with qf.Engine(...)")
    with _lock:
        _current, _used = engine, True


def close_default_engine() -> None:
    """Close the default engine, if one was made; the next query makes a new one."""
    global _current
    with _lock:
        if _current is not None:
            _current.close()
            _current = None


def _make_engine(options: EngineOptions) -> Runner:
    from quail_frames.runtime.engine import Engine  # loads torch: only when a model is asked
    from quail_frames.runtime.group import EngineGroup

    arguments = {each.name: getattr(options, each.name) for each in fields(options)}
    arguments |= arguments.pop("backend_options")
    model, devices = arguments.pop("model"), arguments.pop("devices")
    if devices is None:
        return Engine(model, **arguments)
    del arguments["device"]
    return EngineGroup(model, devices=devices, **arguments)
