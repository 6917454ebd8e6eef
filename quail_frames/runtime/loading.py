"""Opening a model by name: the oracle, or a torch decoder with its tokenizer."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from quail_frames.cost import devices
from quail_frames.cost.budgets import budgets
from quail_frames.cost.roofline import roofline
from quail_frames.cost.shapes import SHAPES, ModelShape, shape
from quail_frames.cost.work import Work, prefill
from quail_frames.runtime.compiled import DecisionFormat, ModelTraits, Tokenizer
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.options import AttentionPath, Dtype, Products
from quail_frames.runtime.oracle import NullModel, OracleModel
from quail_frames.runtime.scheduler import Model
from quail_frames.runtime.simulated import SimulatedModel
from quail_frames.runtime.tokens.oracle_tokenizer import OracleTokenizer

HOST_SECONDS = 2.5e-4
"""What finding and sharing one document's pages takes the host (measured: 0.2 to 0.5 ms)."""

NULL_BUDGET = 1 << 17
"""Tokens of a batch of the null device: about what an H100 takes of a 4B model (110,376 by `cost/budgets.py`)."""


@dataclass(frozen=True)
class OpenedModel:
    """A model ready to run batches, and the facts that the engine plans with."""

    model: Model
    tokenizer: Tokenizer
    traits: ModelTraits
    shape: ModelShape
    """What `auto` label scoring is chosen by."""
    identity: str
    context_length: int
    kv_bytes_per_token: int
    default_kv_bytes: int
    default_token_budget: int
    recompute_cost: Callable[[int], float] = float
    """FLOPs, or any unit, of computing a document of so many tokens."""
    share_from: int = 1
    """Least leading pages for which rows share KV; see `Memory`."""
    reads_of_a_token: int = 64
    """Tokens of a context read in the time of one computed; see `Memory`."""


def open_model(
    name: str,
    *,
    device: str,
    dtype: Dtype,
    attention: AttentionPath = "auto",
    products: Products = "auto",
    kernels: str | None = None,
) -> OpenedModel:
    """The model of this name on this device."""
    if device.startswith("simulated:"):
        return _open_simulated(name, device.removeprefix("simulated:"))
    if name == "oracle":
        return _open_oracle(device)
    if device == "kernels" or device.startswith("cuda"):
        from quail_frames.runtime.device.opening import open_device_model

        return open_device_model(name, device=device, dtype=dtype, attention=attention, kernels=kernels)
    from quail_frames.runtime.torch_model import open_torch_model

    return open_torch_model(name, device=device, dtype=dtype, attention=attention, products=products)


def _open_simulated(name: str, device_name: str) -> OpenedModel:
    model, place = shape(name), devices.device(device_name)
    room = budgets(model, place)
    return OpenedModel(
        SimulatedModel(model, place),
        OracleTokenizer(),
        ModelTraits(decision=DecisionFormat()),
        model,
        identity=f"simulated {model.name} {place.name}",
        context_length=1 << 17,
        kv_bytes_per_token=int(model.kv_bytes_per_token),
        default_kv_bytes=int(room.kv_bytes),
        default_token_budget=room.tokens,
        share_from=share_from(model, place),
        reads_of_a_token=reads_of_a_token(model, place),
    )


def share_from(model: ModelShape, place: devices.Device) -> int:
    """Pages whose prefill takes the device as long as sharing takes the host."""
    page = roofline(prefill(PAGE), model, place, batches=0.0).seconds
    return max(1, math.ceil(HOST_SECONDS / page))


def reads_of_a_token(model: ModelShape, place: devices.Device) -> int:
    """Tokens of a context that the device reads in the time in which it computes one.

    By the roofline 30 (a model of 135M parameters) to 90 (4B) on an H100, hundreds on a CPU.
    """
    token = roofline(Work(new_tokens=1), model, place, batches=0.0).seconds
    return max(1, round(token * place.bandwidth / model.kv_bytes_per_token))


def _open_oracle(device: str) -> OpenedModel:
    model = NullModel() if device == "null" else OracleModel()
    return OpenedModel(
        model,
        OracleTokenizer(),
        ModelTraits(decision=DecisionFormat()),
        SHAPES["smollm2-135m"],
        identity="null" if device == "null" else "oracle",
        context_length=1 << 17,
        kv_bytes_per_token=8,
        default_kv_bytes=64 << 20,
        share_from=3,
        default_token_budget=NULL_BUDGET if device == "null" else 1 << 15,
    )
