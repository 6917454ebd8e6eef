"""GGUF files: what we read equals what the gguf package writes and reads, and what the model computes."""

from __future__ import annotations

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from torch import Tensor
from transformers import AutoConfig

from quail_frames.errors import ModelError
from quail_frames.runtime.models.attention import causal_attention
from quail_frames.runtime.models.decoder import Decoder
from quail_frames.runtime.models.gguf import GgufWeights, huggingface_name
from quail_frames.runtime.models.gguf_file import open_gguf
from quail_frames.runtime.models.rope import inverse_frequencies
from quail_frames.runtime.models.weights import assemble

F32 = GGMLQuantizationType.F32
Kind = GGMLQuantizationType


def interleaved(weight: np.ndarray[Any, Any], heads: int) -> np.ndarray[Any, Any]:
    """llama.cpp's storage of q and k rows: pair i of a head is rows 2 i and 2 i + 1."""
    half = weight.shape[0] // heads // 2
    rows = [head * 2 * half + part * half + i for head in range(heads) for i in range(half) for part in range(2)]
    return weight[rows]


def write_gguf(path: Path, tiny: Any, kind: Kind = F32, rope_factors: Tensor | None = None, **entries: Any) -> Path:
    """Stores a tiny transformers model as llama.cpp's converter does."""
    config, architecture = tiny.oracle.config, tiny.oracle.config.model_type.removesuffix("_text")
    rope = config.rope_parameters
    writer = gguf.GGUFWriter(str(path), architecture)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_freq_base(rope.get("full_attention", rope)["rope_theta"])
    if architecture in ("qwen3", "gemma3"):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if architecture == "gemma3":
        writer.add_sliding_window(config.sliding_window)
    for key, value in entries.items():
        writer.add_string(f"{architecture}.{key.replace('__', '.')}", value)
    if rope_factors is not None:
        writer.add_tensor("rope_freqs.weight", rope_factors.numpy())
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH[architecture.upper()], config.num_hidden_layers)
    for name, tensor in tiny.oracle.state_dict().items():
        if name == "lm_head.weight" and config.tie_word_embeddings:
            continue
        weight = tensor.numpy()
        if architecture == "gemma3" and name.endswith("norm.weight"):
            weight = weight + 1
        if architecture == "llama" and ("q_proj" in name or "k_proj" in name):
            weight = interleaved(weight, config.num_attention_heads if "q_proj" in name else config.num_key_value_heads)
        stored = names.get_name(name, try_suffixes=(".weight", ".bias"))
        chosen = kind if weight.ndim == 2 else F32
        writer.add_tensor(stored, gguf.quants.quantize(weight, chosen), raw_dtype=chosen)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def read_decoder(path: Path) -> Decoder:
    source = GgufWeights(path)
    return Decoder(source.config(), assemble(source.config(), source, torch.device("cpu"), torch.float32))


def all_logits(decoder: Decoder, tokens: Tensor) -> Tensor:
    attend = causal_attention(windows=decoder.config.windows)
    return decoder.logits(decoder.hidden(tokens, torch.arange(len(tokens)), attend))


VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "qwen2": ("qwen2", {}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "gemma3": (
        "gemma3_text",
        {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 24, "num_hidden_layers": 7},
    ),
}


@pytest.mark.parametrize("variant", VARIANTS)
def test_a_model_stored_as_gguf_equals_transformers(make_tiny: Any, tmp_path: Path, variant: str) -> None:
    architecture, options = VARIANTS[variant]
    tiny = make_tiny(architecture, **options)
    decoder = read_decoder(write_gguf(tmp_path / "tiny.gguf", tiny))
    tokens = torch.arange(100)
    assert (all_logits(decoder, tokens) - tiny.logits(tokens)).abs().max() <= 1e-4


def test_llama_3_rope_is_read_from_stored_factors(make_tiny: Any, tmp_path: Path) -> None:
    rope = {"rope_type": "llama3", "rope_theta": 10_000.0, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 64}  # fmt: skip
    tiny = make_tiny("llama", rope_parameters=rope)
    plain = 1.0 / 10_000.0 ** (torch.arange(0, 8, 2) / 8)
    path = write_gguf(tmp_path / "tiny.gguf", tiny, rope_factors=plain / tiny.oracle.model.rotary_emb.inv_freq)
    config = GgufWeights(path).config()
    torch.testing.assert_close(inverse_frequencies(config, torch.device("cpu")), tiny.oracle.model.rotary_emb.inv_freq)
    tokens = torch.arange(100)
    assert (all_logits(read_decoder(path), tokens) - tiny.logits(tokens)).abs().max() <= 1e-4


@pytest.mark.parametrize(
    "kind", [Kind.F16, Kind.BF16, Kind.Q8_0, Kind.Q4_0, Kind.Q4_1, Kind.Q5_0, Kind.Q5_1], ids=lambda kind: kind.name
)
def test_stored_types_are_dequantised(make_tiny: Any, tmp_path: Path, kind: Kind) -> None:
    tiny = make_tiny("qwen2", hidden_size=96, intermediate_size=128)
    source = GgufWeights(write_gguf(tmp_path / "tiny.gguf", tiny, kind))
    weight = tiny.oracle.state_dict()["model.layers.1.mlp.down_proj.weight"]
    expected = gguf.quants.dequantize(gguf.quants.quantize(weight.numpy(), kind), kind)
    found = source.read("model.layers.1.mlp.down_proj.weight")
    assert found.shape == weight.shape and np.array_equal(found.numpy(), expected)


@pytest.mark.parametrize("kind", [Kind.Q4_K, Kind.Q5_K, Kind.Q6_K], ids=lambda kind: kind.name)
def test_k_quants_are_dequantised(tmp_path: Path, kind: Kind) -> None:
    blocks = np.random.default_rng(0).integers(0, 60, (4, 2 * gguf.GGML_QUANT_SIZES[kind][1]), dtype=np.uint8)
    path = write_tensors(tmp_path / "k.gguf", {"token_embd.weight": (blocks, kind)})
    found = GgufWeights(path).read("model.embed_tokens.weight")
    assert found.shape == (4, 512)
    assert np.array_equal(found.numpy(), gguf.quants.dequantize(blocks, kind), equal_nan=True)


def write_tensors(path: Path, tensors: dict[str, Any], architecture: str = "qwen2", **entries: int) -> Path:
    """A file with the metadata of a small model and just these tensors."""
    writer = gguf.GGUFWriter(str(path), architecture)
    shape = {"block_count": 1, "context_length": 64, "embedding_length": 512, "feed_forward_length": 64,
             "attention.head_count": 4, **entries}  # fmt: skip
    for key, value in shape.items():
        writer.add_uint32(f"{architecture}.{key}", value)
    writer.add_float32(f"{architecture}.attention.layer_norm_rms_epsilon", 1e-5)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.fixture
def embedding() -> dict[str, Any]:
    return {"token_embd.weight": (np.ones((4, 512), dtype=np.float32), F32)}


def test_an_unreadable_stored_type_is_named(tmp_path: Path) -> None:
    blocks = np.zeros((4, 2 * gguf.GGML_QUANT_SIZES[Kind.IQ4_XS][1]), dtype=np.uint8)
    path = write_tensors(tmp_path / "iq.gguf", {"token_embd.weight": (blocks, Kind.IQ4_XS)})
    with pytest.raises(ModelError, match=r"'token_embd.weight' of .*iq\.gguf is stored as IQ4_XS.*Q4_1"):
        read_decoder(path)


def test_a_missing_tensor_is_named_with_its_file(tmp_path: Path, embedding: dict[str, Any]) -> None:
    path = write_tensors(tmp_path / "part.gguf", embedding)
    with pytest.raises(ModelError, match=r"'model\.layers\.0\.input_layernorm\.weight' of .*part\.gguf is missing"):
        read_decoder(path)


def test_a_wrong_shape_is_named_with_its_file(tmp_path: Path, embedding: dict[str, Any]) -> None:
    norm = (np.ones(8, dtype=np.float32), F32)
    path = write_tensors(tmp_path / "odd.gguf", {**embedding, "blk.0.attn_norm.weight": norm})
    with pytest.raises(ModelError, match=r"'blk\.0\.attn_norm\.weight' .*odd\.gguf has the shape \(8,\).*\(512,\)"):
        read_decoder(path)


@pytest.mark.parametrize(("architecture", "entries"), [("gemma2", {}), ("llama", {"expert_count": 8})])
def test_other_architectures_are_refused(
    tmp_path: Path, embedding: dict[str, Any], architecture: str, entries: dict[str, int]
) -> None:
    path = write_tensors(tmp_path / "other.gguf", embedding, architecture, **entries)
    with pytest.raises(ModelError, match=f"architecture '{architecture}'.*llama, qwen2, qwen3"):
        GgufWeights(path)


def test_unknown_rope_scaling_is_refused(make_tiny: Any, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "yarn.gguf", make_tiny("qwen2"), rope__scaling__type="yarn")
    with pytest.raises(ModelError, match="RoPE scaling 'yarn'"):
        GgufWeights(path)


@pytest.mark.parametrize("keep", [0, 3, 20, 150, 2000])
def test_a_file_cut_short_is_refused(tmp_path: Path, embedding: dict[str, Any], keep: int) -> None:
    path = write_tensors(tmp_path / "cut.gguf", embedding)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelError, match=r"cut\.gguf is not a readable GGUF file"):
        open_gguf(path)


def test_the_header_equals_what_the_gguf_package_reads(make_tiny: Any, tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "tiny.gguf", make_tiny("llama"), Kind.F16)
    ours, theirs = open_gguf(path), gguf.GGUFReader(path)
    assert ours.metadata == {key: field.contents() for key, field in theirs.fields.items() if "." in key[5:]}
    for tensor in theirs.tensors:
        mine = ours.tensors[tensor.name]
        assert (mine.shape, mine.kind, mine.start) == (
            tuple(tensor.shape[::-1].tolist()), tensor.tensor_type, tensor.data_offset,
        )  # fmt: skip
        assert ours.stored(tensor.name).tobytes() == tensor.data.tobytes()


def test_every_kind_of_metadata_value_is_read(tmp_path: Path) -> None:
    values: dict[str, tuple[Callable[..., None], Any]] = {}
    writer = gguf.GGUFWriter(str(tmp_path / "m.gguf"), "llama")
    for name in ("uint8", "int8", "uint16", "int16", "uint32", "int32", "uint64", "int64", "float32", "float64"):
        values[f"a.{name}"] = getattr(writer, f"add_{name}"), 7
    values["a.bool"] = writer.add_bool, True
    values["a.string"] = writer.add_string, "größer"
    values["a.strings"] = writer.add_array, ["x", "", "日本"]
    values["a.numbers"] = writer.add_array, [1, 2, 3]
    for key, (add, value) in values.items():
        add(key, value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = open_gguf(tmp_path / "m.gguf").metadata
    assert {key: found[key] for key in values} == {key: value for key, (_, value) in values.items()}


def test_names_follow_hugging_face() -> None:
    assert huggingface_name("blk.11.attn_k_norm.weight") == "model.layers.11.self_attn.k_norm.weight"
    assert huggingface_name("output_norm.weight") == "model.norm.weight"
    assert huggingface_name("blk.0.ffn_gate_inp.weight") == "blk.0.ffn_gate_inp.weight"


def test_the_default_model_is_what_it_says(default_model_file: Path) -> None:
    config = GgufWeights(default_model_file).config()
    published = AutoConfig.for_model("llama", hidden_size=576, num_attention_heads=9, num_key_value_heads=3)
    assert (config.num_layers, config.hidden_size, config.intermediate_size) == (30, 576, 1536)
    assert (config.num_heads, config.num_kv_heads, config.head_dim) == (9, 3, published.head_dim)
    assert (config.context_length, config.rope_theta, config.tie_word_embeddings) == (8192, 100_000.0, True)


def header(key: bytes, *value: int, codes: str) -> bytes:
    """A GGUF header without tensors and with one entry."""
    counts = struct.pack("<4sIQQ", b"GGUF", 3, 0, 1)
    return counts + struct.pack("<Q", len(key)) + key + struct.pack("<" + codes, *value)


def test_lists_of_lists_are_read(tmp_path: Path) -> None:
    path = tmp_path / "nested.gguf"
    path.write_bytes(header(b"k", 9, 9, 2, 4, 1, 7, 4, 2, 8, 9, codes="IIQIQIIQII") + bytes(64))
    assert open_gguf(path).metadata == {"k": [[7], [8, 9]]}


@pytest.mark.parametrize(
    "content",
    [
        header(b"general.alignment", 4, 0, codes="II"),
        header(b"k", 9, 4, 1 << 60, codes="IIQ"),
        header(b"k", 99, codes="I"),
        header(b"k", *([9] + [9, 1] * 5000), codes="I" + "IQ" * 5000),
    ],
    ids=["alignment 0", "endless list", "unknown kind", "lists in lists in lists"],
)
def test_a_malformed_header_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "malformed.gguf"
    path.write_bytes(content)
    with pytest.raises(ModelError, match="not a readable GGUF file"):
        open_gguf(path)
