"""Opening a model on a GPU, or by the GPU's code on a CPU: its weights, its budgets, the kernels that run it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import torch

from quail_frames.cost.budgets import Budgets, budgets, own_conventions
from quail_frames.cost.devices import DEVICES, Device, device_of_gpu
from quail_frames.cost.shapes import ModelShape
from quail_frames.errors import ModelError, PlanError
from quail_frames.kernels import choices, parse_pins, pinned
from quail_frames.runtime.device.decoder import KernelDecoder
from quail_frames.runtime.device.model import NO_PINS, DeviceModel
from quail_frames.runtime.loading import OpenedModel, reads_of_a_token, share_from
from quail_frames.runtime.models.load import ModelFiles, open_files, resolve_dtype, torch_device
from quail_frames.runtime.models.weights import BlockScaled, assemble_scaled
from quail_frames.runtime.named import CPU_TOKEN_BUDGET, cpu_kv_bytes
from quail_frames.runtime.options import AttentionPath, Dtype
from quail_frames.runtime.torch_model import recompute_cost, shape_of, traits_of

FP8_CAPABILITY = (8, 9)
"""The first CUDA compute capability with FP8 arithmetic; older cards expand FP8 weights."""


def open_device_model(
    name: str, *, device: str, dtype: Dtype, attention: AttentionPath = "auto", kernels: str | None = None
) -> OpenedModel:
    """Load a model for `cuda`, `cuda:N` or `kernels` and say what the engine needs to plan with it.

    `kernels` runs the same code on the CPU: by the kernels' references, or by Triton's interpreter where
    `TRITON_INTERPRET=1` and `QUAIL_FRAMES_KERNELS=triton` are set. `kernels` pins operations of this model alone.

    Raises
    ------
    ModelError
        There is no such device here, the model does not fit it, or a pin cannot be kept.
    """
    place = kernel_place(device)
    return open_device_files(open_files(name), place, resolve_dtype(dtype, place), attention, kernels)


def open_device_files(
    files: ModelFiles,
    place: torch.device,
    chosen: torch.dtype,
    attention: AttentionPath = "auto",
    kernels: str | None = None,
) -> OpenedModel:
    """As `open_device_model`, of files that are already open."""
    pins = _checked_pins(kernels, place)
    config = files.config
    weights = assemble_scaled(config, files.source, place, chosen, keep=_has_fp8(place))
    decoder = KernelDecoder(config, weights)
    scaled = any(isinstance(layer.down, BlockScaled) for layer in decoder.weights.layers)
    head = files.head()
    shape = shape_of(files.name, config, chosen)
    shape = shape.in_dtype("fp8") if scaled else shape
    opened = OpenedModel(
        DeviceModel(decoder, unified=attention == "unified", head=head and head.to(place), pins=pins),
        files.tokenizer,
        traits_of(files.spec, head),
        shape,
        identity=f"{files.identity()} {chosen}",
        context_length=files.spec.context_length,
        kv_bytes_per_token=int(shape.kv_bytes_per_token),
        default_kv_bytes=cpu_kv_bytes(),
        default_token_budget=CPU_TOKEN_BUDGET,
        recompute_cost=recompute_cost(config),
    )
    return opened if place.type == "cpu" else _with_budgets(opened, shape, place)


def _checked_pins(text: str | None, place: torch.device) -> Mapping[str, str]:
    """The pins, after every operation's implementation was chosen under them: once, at start, since a library's kernel
    is compared with the reference before it is used.
    """
    try:
        pins = NO_PINS if text is None else parse_pins(text, "kernels=")
        with pinned(pins):
            choices(place)
    except ValueError as error:
        raise ModelError(str(error)) from error
    return pins


def kernel_place(device: str) -> torch.device:
    """The torch device that `cuda`, `cuda:N` or `kernels` names; ModelError where there is none."""
    if device == "kernels":
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ModelError(
            f"device={device!r}: torch {torch.__version__} finds no CUDA device here. Use device='cpu', or "
            "'simulated:h100-sxm' to study a plan on a GPU; `quail-frames doctor` shows what is found."
        )
    place = torch_device(device)
    return torch.device("cuda", torch.cuda.current_device()) if place.index is None else place


def _has_fp8(place: torch.device) -> bool:
    return place.type == "cpu" or torch.cuda.get_device_capability(place) >= FP8_CAPABILITY


def _with_budgets(opened: OpenedModel, shape: ModelShape, place: torch.device) -> OpenedModel:
    """Token and KV budget by the cost model from the card's free memory, the loaded weights being part of what is
    used.
    """
    profile = profile_of(place)
    room = device_budgets(shape, profile, torch.cuda.mem_get_info(place)[0], torch.cuda.memory_reserved(place),
                          torch.cuda.memory_allocated(place))  # fmt: skip
    return replace(
        opened,
        default_kv_bytes=int(room.kv_bytes),
        default_token_budget=room.tokens,
        share_from=share_from(shape, profile),
        reads_of_a_token=reads_of_a_token(shape, profile),
    )


def profile_of(place: torch.device) -> Device:
    """The published profile of the card; that of an A100 under the card's own name where there is none."""
    name = torch.cuda.get_device_name(place)
    return device_of_gpu(name) or replace(DEVICES["a100-80"], name=name)


def device_budgets(shape: ModelShape, profile: Device, free: float, reserved: float, weights: float) -> Budgets:
    """Budgets of a loaded model: `free` bytes of the card are nobody's, `reserved` ones torch's, `weights` of these
    in use.

    Raises
    ------
    ModelError
        What is left does not hold a page of KV and its activations.
    """
    card = replace(profile, memory_bytes=free + reserved)
    try:
        return budgets(shape, card, replace(own_conventions(shape, card), weight_bytes=weights))
    except PlanError as error:
        raise ModelError(str(error)) from error
