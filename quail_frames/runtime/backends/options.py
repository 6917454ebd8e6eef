"""Options of the backends, and what is refused where it would have no effect."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, TypedDict, get_args

from quail_frames.errors import ModelError
from quail_frames.runtime.backends.endpoint.settings import EndpointSettings

Backend = Literal["native", "vllm", "openai"]
BACKENDS: tuple[str, ...] = get_args(Backend)


class BackendOptions(TypedDict, total=False):
    """Options of `backend="openai"` and `backend="vllm"`.

    openai
        base_url              of the endpoint, up to `/v1`; default: `OPENAI_BASE_URL`, else OpenAI's
        api_key               default: `OPENAI_API_KEY`; an endpoint on your machine may need none
        concurrency           requests under way at once
        timeout               seconds of one attempt, from connecting to the last byte
        retries               attempts after the first, of a question that was not answered
        backoff               seconds before the first retry; each further one waits about twice as long
        longest_wait          most seconds before a retry, whatever the endpoint asks for
        requests_per_minute   most requests begun in a minute
        tokens_per_minute     most tokens begun in a minute, counted at four bytes a token
        api                   "chat" or "completions"
        structured            how answers are constrained; "auto" asks the endpoint what it is
        extra_body            further fields of every request
    vllm
        schedule              "pipelined": a row's next question goes out when its last one is answered;
                              "stages": one question of all rows after the other
        engine_args           further arguments of `vllm.LLM`
    """

    base_url: str | None
    api_key: str | None
    concurrency: int
    timeout: float
    retries: int
    backoff: float
    longest_wait: float
    requests_per_minute: float | None
    tokens_per_minute: float | None
    api: Literal["chat", "completions"]
    structured: Literal["auto", "json_schema", "structured_outputs", "guided_choice", "grammar", "none"]
    extra_body: Mapping[str, Any]
    schedule: Literal["pipelined", "stages"]
    engine_args: Mapping[str, Any]


VLLM_OPTIONS = ("schedule", "engine_args")
OPENAI_OPTIONS = tuple(name for name in BackendOptions.__annotations__ if name not in VLLM_OPTIONS)
OPTIONS_OF: dict[str, tuple[str, ...]] = {"native": (), "vllm": VLLM_OPTIONS, "openai": OPENAI_OPTIONS}


@dataclass(frozen=True)
class NativeOptions:
    """The native runtime's options, of which other backends know some."""

    device: str = "cpu"
    dtype: str = "auto"
    kv_budget: int | None = None
    token_budget: int | None = None
    max_length: int | None = None
    attention: str = "auto"
    products: str = "auto"
    kernels: str | None = None


_SERVER = "the server at base_url decides that: leave it out"
_VLLM = "vLLM decides that: leave it out, or say it in vLLM's words, as in engine_args={...}"
_REFUSED: dict[str, dict[str, str]] = {
    "openai": {
        "device": _SERVER,
        "dtype": _SERVER,
        "kv_budget": _SERVER,
        "attention": _SERVER,
        "products": _SERVER,
        "kernels": _SERVER,
        "token_budget": "requests are counted one by one: say concurrency=..., or tokens_per_minute=...",
        "max_length": "the server counts the tokens, and a prompt that it finds too long gives null: leave it out",
    },
    "vllm": {"device": _VLLM, "attention": _VLLM, "products": _VLLM, "kernels": _VLLM},
}


def check_backend(backend: str, model: str, native: NativeOptions, options: Mapping[str, Any]) -> None:
    """Refuse what the backend does not know, what would have no effect, and values that cannot be.

    Raises
    ------
    ModelError
        Names the option and what to do instead.
    """
    if backend not in BACKENDS:
        raise ModelError(f"There is no backend {backend!r}; choose {', '.join(map(repr, BACKENDS))}.")
    for name in options:
        if name not in OPTIONS_OF[backend]:
            raise ModelError(_unknown(backend, name))
    for field in fields(native):
        advice = _REFUSED.get(backend, {}).get(field.name)
        if advice is not None and getattr(native, field.name) != field.default:
            raise ModelError(f"{field.name}= has no effect with backend={backend!r}: {advice}.")
    if backend == "openai":
        EndpointSettings.of(model, options)
    if backend == "vllm":
        _check_vllm(options)


def _check_vllm(options: Mapping[str, Any]) -> None:
    schedule, arguments = options.get("schedule", "pipelined"), options.get("engine_args", {})
    if schedule not in ("pipelined", "stages"):
        raise ModelError(f"schedule={schedule!r}: choose 'pipelined' or 'stages'.")
    if not isinstance(arguments, Mapping):
        raise ModelError(f"engine_args={arguments!r}: give a mapping of arguments of vllm.LLM.")


def _unknown(backend: str, name: str) -> str:
    if name == "devices":
        return (
            "An Engine runs on one device: open qf.EngineGroup(model, devices=...), or say qf.configure(devices=...)."
        )
    owners = [other for other in BACKENDS if name in OPTIONS_OF[other]]
    if owners:
        owner = owners[0]
        return (
            f"{name}= is an option of backend={owner!r}, not of backend={backend!r}: change backend=, or leave it out."
        )
    near = difflib.get_close_matches(
        name, [*BackendOptions.__annotations__, *(f.name for f in fields(NativeOptions))], 1
    )
    return f"There is no option {name}=" + (f"; did you mean {near[0]}=?" if near else ".")
