"""Loading a model by name: its files, decoder, tokenizer and the facts of how it wants to be prompted."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch

from quail_frames.errors import ModelError
from quail_frames.runtime.models.adapter import AdaptedWeights, Adapter, read_adapter
from quail_frames.runtime.models.adapter_file import adapter_path
from quail_frames.runtime.models.config import ModelConfig
from quail_frames.runtime.models.decision_head import DecisionHead, head_of
from quail_frames.runtime.models.decoder import Decoder
from quail_frames.runtime.models.hub import BUILT_IN, resolve
from quail_frames.runtime.models.layers import EAGER
from quail_frames.runtime.models.malformed import refuse_malformed
from quail_frames.runtime.models.safetensors import SafetensorsFolder, read_json
from quail_frames.runtime.models.weights import WeightSource, assemble
from quail_frames.runtime.native.elementwise import elementwise
from quail_frames.runtime.native.steps import steps
from quail_frames.runtime.options import Library
from quail_frames.runtime.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from quail_frames.runtime.models.gguf import GgufWeights

Dtype = Literal["auto", "float32", "bfloat16", "float16"]
DECISION_OPTIONS = "decision.json"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


@dataclass(frozen=True)
class ModelSpec:
    """How a model is prompted and read.

    Attributes
    ----------
    context_length
        The longest prompt, in tokens.
    bos_id
        Token before every prompt; None where the model expects none.
    before_preamble, after_cue
        Chat turn markers: text in which names of control tokens stand for these tokens
        (`Tokenizer.encode_markers`).
    pooling
        How the logits of TRUE's tokens become one number (and FALSE's).
    temperature, bias
        Calibration: the score is `sigmoid((true - false) / temperature + bias)`.
    choice_temperature, letters_temperature
        Calibration of label probabilities: `decision_choice` and `letters` divide their logits by it.
    label_scoring
        What `scoring="auto"` means for this model; None: the cheapest method.
    masked_options, blocks, head_questions
        How a model with a decision head was trained: its options side by side or in sequence, as lines of text or as
        JSON objects; TRUE/FALSE questions by the head too, as a choice of false and true.
    """

    context_length: int
    bos_id: int | None = None
    before_preamble: str = ""
    after_cue: str = ""
    pooling: Literal["max", "logsumexp"] = "max"
    temperature: float = 1.0
    bias: float = 0.0
    choice_temperature: float = 1.0
    letters_temperature: float = 1.0
    label_scoring: Literal["letters", "trie_decode", "trie_tree", "decision_choice"] | None = None
    masked_options: bool = True
    blocks: Literal["lines", "json"] = "lines"
    head_questions: bool = False


@dataclass(frozen=True)
class LoadedModel:
    """A model ready to run. `identity` is the same wherever the same weights and vocabulary are read."""

    name: str
    decoder: Decoder
    tokenizer: Tokenizer
    spec: ModelSpec
    identity: str
    head: DecisionHead | None = None


def load_model(
    name: str | os.PathLike[str], *, device: str = "cpu", dtype: Dtype = "auto", library: Library = "torch"
) -> LoadedModel:
    """Reads a model into memory.

    Parameters
    ----------
    name
        A built-in model (`smollm2-135m-decide`, `smollm2-135m`), a `.gguf` file, a folder with safetensors, an adapter
        (`.safetensors`; its base is fetched like any model), or a Hugging Face id.
    device
        A torch device.
    dtype
        `auto`: bfloat16 on CUDA and on CPUs with bfloat16 matrix instructions, else float32.
    library
        Who multiplies matrices; see `quail_frames.runtime.models.products`.

    Raises
    ------
    ModelError
        The model is not found, cannot be fetched or read, or the device is not there.

    Examples
    --------
    >>> model = load_model("smollm2-135m")                          # doctest: +SKIP
    >>> model.decoder.config.num_layers                             # doctest: +SKIP
    30
    """
    place = torch_device(device)
    chosen = resolve_dtype(dtype, place)
    files = open_files(name)
    groups = elementwise(files.config, chosen) if place.type == "cpu" else EAGER
    decoder = Decoder(files.config, assemble(files.config, files.source, place, chosen, library), library, groups)
    decoder.steps = steps(decoder.shape, decoder.weights.layers)
    head = files.head()
    return LoadedModel(files.name, decoder, files.tokenizer, files.spec, files.identity(), head and head.to(place))


@dataclass(frozen=True)
class ModelFiles:
    """A model's files, opened but for the weights.

    `options` are the fields of `ModelSpec` that come with the weights; `where` is what holds the decision head.
    """

    name: str
    source: WeightSource
    config: ModelConfig
    tokenizer: Tokenizer
    options: Mapping[str, Any] = field(default_factory=dict)
    where: str = ""

    @property
    def spec(self) -> ModelSpec:
        """How the model is prompted and read."""
        return ModelSpec(self.config.context_length, self.tokenizer.bos_id, **self.options)

    def head(self) -> DecisionHead | None:
        """The decision head, where the weights have one."""
        return head_of(self.source, self.config.hidden_size, self.where)

    def identity(self) -> str:
        """See `identity`."""
        return identity(self.config, self.source, self.tokenizer, self.spec)


def open_files(name: str | os.PathLike[str]) -> ModelFiles:
    """The files of a model by name; raises ModelError as `load_model` does."""
    adapter = _adapter(name)
    base = name if adapter is None else adapter.base
    path = resolve(base)
    with refuse_malformed(path, fetched=os.fspath(base) in BUILT_IN):
        source, tokenizer = _open(path)
        config = source.config()
        _check_vocabulary(config, tokenizer, os.fspath(name))
    if adapter is None:
        return ModelFiles(os.fspath(name), source, config, tokenizer, decision_options(path), str(path))
    adapted = AdaptedWeights(source, adapter)
    return ModelFiles(os.fspath(name), adapted, config, tokenizer, adapter.spec, str(adapter.path))


def resolve_dtype(dtype: Dtype, device: torch.device) -> torch.dtype:
    """The torch dtype of the weights: the one named, or for `auto` the fastest that the device computes well."""
    if dtype != "auto":
        if dtype not in DTYPES:
            raise ModelError(f"There is no dtype {dtype!r}; choose 'auto', {', '.join(map(repr, DTYPES))}.")
        return DTYPES[dtype]
    fast = _cpu_has_fast_bfloat16() if device.type == "cpu" else device.type == "cuda"
    return torch.bfloat16 if fast else torch.float32


def identity(config: ModelConfig, source: WeightSource, tokenizer: Tokenizer, spec: ModelSpec) -> str:
    """Stable hash of what decides a model's answers, device and dtype aside: 32 hexadecimal digits.

    BLAKE2b over the config, the spec, the tokenizer, and of every tensor its name, shape, stored type
    and first and last stored bytes. Reading all bytes of a large model would take minutes;
    training moves every tensor, so its ends tell models apart.
    """
    digest = hashlib.blake2b(json.dumps(asdict(config), sort_keys=True).encode(), digest_size=16)
    digest.update(json.dumps(asdict(spec), sort_keys=True).encode())
    digest.update(tokenizer.identity.encode())
    for name in sorted(source.names()):
        digest.update(f"{name}{source.shape(name)}".encode())
        digest.update(source.sample(name))
    return digest.hexdigest()


def _adapter(name: str | os.PathLike[str]) -> Adapter | None:
    path = adapter_path(name)
    return None if path is None else read_adapter(path)


def _open(path: Path) -> tuple[SafetensorsFolder | GgufWeights, Tokenizer]:
    if path.is_dir():
        folder = SafetensorsFolder(path)
        return folder, Tokenizer.from_folder(path, folder.config().bos_id)
    from quail_frames.runtime.models.gguf import GgufWeights  # a GPU machine may lack the package gguf

    weights = GgufWeights(path)
    return weights, Tokenizer.from_gguf(weights.file.metadata, str(path))


def decision_options(path: Path) -> dict[str, Any]:
    """Fields of `ModelSpec` that a model's folder gives in decision.json: how its decision head was trained.

    A model without the file has none; the file of a model whose options stand in sequence as JSON objects is
    `{"masked_options": false, "blocks": "json", "head_questions": true}`.
    """
    file = path / DECISION_OPTIONS
    options = read_json(file) if file.exists() else {}
    unknown = sorted(options.keys() - {field.name for field in fields(ModelSpec)})
    if unknown:
        raise ModelError(f"{file} names {unknown[0]!r}, which is no field of a model's spec. Remove it.")
    return options


def _check_vocabulary(config: ModelConfig, tokenizer: Tokenizer, name: str) -> None:
    if tokenizer.vocab_size > config.vocab_size:
        raise ModelError(
            f"The tokenizer of {name!r} has {tokenizer.vocab_size} tokens, and its weights know {config.vocab_size}: "
            "they are not of the same model. Fetch the model's files again."
        )


def torch_device(name: str) -> torch.device:
    """The torch device of this name; ModelError where it cannot be used here."""
    try:
        device = torch.device(name)
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ModelError(f"The device {name!r} cannot be used here ({reason}). device='cpu' always works.") from error
    return device


def _cpu_has_fast_bfloat16() -> bool:
    """AMX or AVX512-BF16; the probes are private to torch, so one that is gone counts as a no."""
    probes = (getattr(torch.cpu, name, None) for name in ("_is_amx_tile_supported", "_is_avx512_bf16_supported"))
    return any(probe() for probe in probes if probe is not None)
