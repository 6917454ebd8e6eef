"""What a query is priced by: the engine's model, device and tokenizer where it is open; no model is loaded for it.

An engine that is open says all of it. One that is not is priced by its name: a known model's shape, a published device,
or this machine as far as it was measured before.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from weakref import WeakKeyDictionary

from quail_frames.cost.budgets import Budgets
from quail_frames.cost.choices import Target
from quail_frames.cost.cpu import cpu_has_amx
from quail_frames.cost.devices import AMX_CPU, ORDINARY_CPU, Device, device, device_of_gpu
from quail_frames.cost.local import kept_device, local_device
from quail_frames.cost.shapes import ModelShape, known_shape, shape
from quail_frames.errors import CallError, PlanError
from quail_frames.lazy.engines import EngineOptions, Runner, current
from quail_frames.lazy.sampling import statistics_of
from quail_frames.optimizer.prices import (
    PRICED_AS,
    CallFigures,
    LabelFigures,
    LayOut,
    Prices,
    assumed_figures,
)
from quail_frames.plan.calls import AiCall, AiClassify
from quail_frames.plan.label_scoring import ScoringFigures, decode_program, letter_figures, tree_program
from quail_frames.plan.logical import Node
from quail_frames.runtime.compiled import (
    CompiledCall,
    DecisionFormat,
    ModelTraits,
    Tokenizer,
    compile_call,
    piece_encoder,
)
from quail_frames.runtime.kv.pages import PAGE
from quail_frames.runtime.named import cpu_kv_bytes, cpu_token_budget, shape_named, traits_named
from quail_frames.runtime.readouts.decision_choice import DecisionChoiceReadout
from quail_frames.runtime.readouts.labels import LabelTokens
from quail_frames.runtime.readouts.letters import letter_tokens
from quail_frames.runtime.resolve import resolve_call
from quail_frames.runtime.tokens.approximate import ApproximateTokenizer
from quail_frames.runtime.tokens.layouts import Input, Piece, own_tokens

APPROXIMATE = ApproximateTokenizer()
UNLIMITED = Budgets(2048, 1 << 20, 16, 0.0, 0.0, 0.0)
"""Budgets of a model that does not fit its device by our conventions: loading it will say so, not planning."""


@dataclass(frozen=True)
class Place:
    """A model, a device, and the tokenizer that counts; `notes` say how each is known."""

    target: Target
    tokenizer: Tokenizer
    traits: ModelTraits
    exact: bool
    """Whether the tokenizer is the model's own."""
    notes: tuple[str, ...]
    attention: str = "tree"
    share_from: int = 1

    def at(self, price_per_hour: float | None) -> Place:
        """The same place at a price; its own, if it has one, where None is given."""
        if price_per_hour is None:
            return self
        where = replace(self.target.device, price_per_hour=price_per_hour)
        return replace(self, target=replace(self.target, device=where))


def prices_of(plan: Node, place: Place) -> Prices:
    """Prices of a plan as written at a place."""
    tokenizer = place.tokenizer

    def count_tokens(texts: Sequence[str]) -> int:
        if isinstance(tokenizer, ApproximateTokenizer):
            return tokenizer.count(texts)
        return int(tokenizer.encode(list(texts)).offsets[-1])

    tokens_from = "the model's tokenizer" if place.exact else "an approximate tokenizer"
    statistics = statistics_of(plan, count_tokens, tokens_from)
    return Prices(place.target, statistics, layouts(place), place.notes, place.attention, place.share_from)


# Places ---------------------------------------------------------------------------------


def place_of(engine: Runner | None, measure: bool = False) -> Place:
    """Where a query will run: on this engine, or on the default one, which need not be open.

    `measure`: an open engine on a CPU that nobody has measured is measured now, once for this machine (two seconds).
    """
    chosen = current() if engine is None else engine
    if isinstance(chosen, EngineOptions):
        return _unopened(chosen)
    name = str(getattr(chosen, "model_name", type(chosen).__name__))
    model = getattr(chosen, "shape", None) or known_shape(name)
    if not isinstance(model, ModelShape):
        note = f"{name} does not say its model's sizes; priced as {PRICED_AS}"
        return _approximate(shape(PRICED_AS), ORDINARY_CPU, (note,))
    place = getattr(chosen, "device", None)
    unknown = ORDINARY_CPU, (f"{name} does not say what it runs on; priced as an ordinary CPU",)
    where, notes = unknown if place is None else _device(str(place), model, measure)
    target = _with_budgets(_target(model, where), chosen)
    tokenizer: Any = getattr(chosen, "tokenizer", None)
    return Place(
        target,
        APPROXIMATE if tokenizer is None else tokenizer,
        getattr(chosen, "traits", ModelTraits()),
        tokenizer is not None,
        notes,
        getattr(chosen, "attention", "tree"),
        getattr(getattr(chosen, "memory", None), "share_from", 1),
    )


def place_named(model: str | ModelShape, where: str | Device) -> Place:
    """A model by name or shape on a device by name or profile; no model is loaded.

    Raises
    ------
    ModelError
        The model's sizes are not known.
    PlanError
        The device is not known, or the model does not fit it.
    """
    sizes = model if isinstance(model, ModelShape) else shape(model)
    found = where if isinstance(where, Device) else local_device(sizes) if where == "local" else device(where)
    traits = traits_named(model) if isinstance(model, str) else None
    return _approximate(Target.of(sizes, found), None, (), traits)


def as_run_here(model: ModelShape, dtype: str = "auto") -> ModelShape:
    """The shape in the type that this CPU runs it in: that asked for, or where a CPU lacks AMX float32 for bfloat16.

    Without units for it bfloat16 is a thousand times slower, and so would the estimate be.
    """
    if not model.dtype == model.matrix_dtype == "bf16":
        return model
    kept = cpu_has_amx() if dtype == "auto" else dtype != "float32"
    return model if kept else model.in_dtype("fp32")


def _unopened(options: EngineOptions) -> Place:
    sizes = shape_named(options.model) if options.backend == "native" else known_shape(options.model)
    if options.model == "oracle" or options.device.startswith(("null", "simulated:")):
        name = options.model if sizes is not None else PRICED_AS
        where, notes = _device("null" if options.model == "oracle" else options.device, shape(name), False)
        return _approximate(_target(shape(name), where), None, notes)
    traits = _traits(options)
    if sizes is None:
        note = f"the sizes of {options.model} are known once it is loaded; priced as {PRICED_AS}"
        return _approximate(shape(PRICED_AS), ORDINARY_CPU, (note,), traits)
    sizes = as_run_here(sizes, options.dtype) if options.device == "cpu" else sizes
    where, notes = _device(options.device, sizes, False)
    target = _target(sizes, where)
    if options.device == "cpu" and options.backend == "native":
        target = _with_cpu_budgets(target, options)
    return _approximate(target, None, notes, traits)


def _traits(options: EngineOptions) -> ModelTraits:
    """How the model will be asked, as far as its name and the backend say."""
    if options.backend == "openai":
        return ModelTraits(reads="answers")
    traits = traits_named(options.model)
    if options.backend == "native" or traits.decision is None:
        return traits
    return replace(traits, decision=None, default_label_scoring=None)  # vLLM has no decision head


def _with_cpu_budgets(target: Target, options: EngineOptions) -> Target:
    """The target with the budgets that an engine on this CPU will have."""
    tokens = options.token_budget or cpu_token_budget(target.shape.matrix_dtype == "bf16")
    kv_bytes = options.kv_budget
    pages = (cpu_kv_bytes() if kv_bytes is None else kv_bytes) // (int(target.shape.kv_bytes_per_token) * PAGE)
    return replace(target, budgets=replace(target.budgets, tokens=tokens, kv_tokens=pages * PAGE))


def _approximate(
    model: ModelShape | Target, where: Device | None, notes: tuple[str, ...], traits: ModelTraits | None = None
) -> Place:
    target = model if isinstance(model, Target) else _target(model, where or ORDINARY_CPU)
    return Place(target, APPROXIMATE, traits or ModelTraits(), False, notes)


def _device(name: str, model: ModelShape, measure: bool) -> tuple[Device, tuple[str, ...]]:
    """A device by the name that engines use, and how its peaks are known."""
    if name.startswith("simulated:"):
        return device(name.removeprefix("simulated:")), ()
    if name.startswith("cuda"):
        return _gpu()
    if name == "null":
        return ORDINARY_CPU, ("no model computes: priced as an ordinary CPU would",)
    found = local_device(model) if measure else kept_device(model)
    if found is not None:
        return found, ("peaks of this machine as measured",)
    with_amx = model.matrix_dtype == "bf16" and cpu_has_amx()
    kind = "CPU with AMX" if with_amx else "CPU"
    note = f"this machine was not measured yet: priced as an ordinary {kind} (estimate(device='local'))"
    return AMX_CPU if with_amx else ORDINARY_CPU, (note,)


def _gpu() -> tuple[Device, tuple[str, ...]]:
    import torch

    name = torch.cuda.get_device_name() if torch.cuda.is_available() else "no GPU"
    found = device_of_gpu(name)
    return (found, ()) if found is not None else (device("h100-sxm"), (f"{name} has no profile: priced as h100-sxm",))


def _target(model: ModelShape, where: Device) -> Target:
    try:
        return Target.of(model, where)
    except PlanError:
        return Target(model, where, UNLIMITED)


def _with_budgets(target: Target, engine: object) -> Target:
    """The target with the budgets that the engine runs by."""
    tokens, memory = getattr(engine, "token_budget", None), getattr(engine, "memory", None)
    if tokens is None or memory is None:
        return target
    return replace(target, budgets=replace(target.budgets, tokens=tokens, kv_tokens=memory.pages * PAGE))


_laid_out: WeakKeyDictionary[Tokenizer, dict[tuple[object, ...], CallFigures]] = WeakKeyDictionary()

# Layouts --------------------------------------------------------------------------------


def layouts(place: Place) -> LayOut:
    """How calls are laid out for the place's model; each call is worked out once for a tokenizer."""
    known = _laid_out.setdefault(place.tokenizer, {})

    def lay_out(call: AiCall, anchors: tuple[int, ...]) -> CallFigures:
        key = (call, anchors, place.traits, place.target.shape)
        if key not in known:
            known[key] = _figures_or_guess(call, anchors, place)
        return known[key]

    return lay_out


def _figures_or_guess(call: AiCall, anchors: tuple[int, ...], place: Place) -> CallFigures:
    try:
        return _figures(call, anchors, place)
    except CallError:
        if place.exact:
            raise
        return assumed_figures(call, anchors)  # ruled out by tokens that are not the model's own


def _figures(call: AiCall, anchors: tuple[int, ...], place: Place) -> CallFigures:
    slots = tuple(range(len(call.columns)))
    planned = resolve_call(call, slots, anchors, place.tokenizer, place.traits, place.target.shape)
    compiled = compile_call(planned, place.tokenizer, place.traits)
    prompt = compiled.prompt
    return CallFigures(
        layout=planned.layout,
        scoring=planned.scoring,
        document=own_tokens(prompt.document),
        instruction=own_tokens(prompt.instruction),
        question=own_tokens(prompt.question),
        document_slots=_slots(prompt.document),
        question_slots=_slots(prompt.question),
        answer=_answer(compiled, place.tokenizer),
        instruction_key=prompt.instruction_key,
        labels=_labels(compiled, place.tokenizer),
    )


def _slots(pieces: Sequence[Piece]) -> tuple[int, ...]:
    return tuple(piece.column for piece in pieces if isinstance(piece, Input))


def _answer(compiled: CompiledCall, tokenizer: Tokenizer) -> ScoringFigures:
    """Rows and tokens that the read-out adds."""
    call, scoring = compiled.planned.call, compiled.planned.scoring
    if isinstance(call, AiClassify) and scoring in ("trie_decode", "trie_tree"):
        labels = LabelTokens.of(tokenizer, call.labels)
        return (
            decode_program(labels.trie).figures
            if scoring == "trie_decode"
            else tree_program(labels.trie, labels.word_ends).figures
        )
    if isinstance(compiled.readout, DecisionChoiceReadout):
        fed, options = len(compiled.readout.tails.values), len(compiled.readout.reads) - 1
        entries = DecisionFormat().width * (3.0 * options + 1)
        return ScoringFigures(1.0, fed + 1.0, options + 1.0, fed * (fed + 1) / 2, entries)
    return letter_figures(len(compiled.spec.token_ids))


def _labels(compiled: CompiledCall, tokenizer: Tokenizer) -> LabelFigures | None:
    call = compiled.planned.call
    if not isinstance(call, AiClassify):
        return None
    labels, count = LabelTokens.of(tokenizer, call.labels), len(call.labels)
    return LabelFigures(
        labels.trie, labels.word_ends, None, len(letter_tokens(piece_encoder(tokenizer), count)) == count
    )
