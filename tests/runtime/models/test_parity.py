"""Our decoder computes what transformers computes, for every architecture and every way of storing weights."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet
import pytest
import torch
from torch import Tensor
from transformers import AutoConfig, AutoModelForCausalLM, LlamaForCausalLM
from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

from quail_frames.runtime.models.attention import causal_attention
from quail_frames.runtime.models.decoder import Decoder
from quail_frames.runtime.models.gguf import GgufWeights
from quail_frames.runtime.models.load import LoadedModel, load_model
from quail_frames.runtime.native.library import usable
from quail_frames.runtime.native.steps import FusedSteps

DATA = Path(__file__).parents[3] / "examples" / "data"
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "rope_theta": 10_000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
GEMMA = {
    "head_dim": 16,
    "sliding_window": 40,
    "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
    "query_pre_attn_scalar": 16,
}
GEMMA_ROPE = {
    "sliding_attention": {"rope_type": "default", "rope_theta": 10_000.0},
    "full_attention": {"rope_type": "linear", "rope_theta": 100_000.0, "factor": 8.0},
}
VARIANTS: dict[str, tuple[str, dict[str, Any]]] = {
    "llama": ("llama", {}),
    "llama tied": ("llama", {"tie_word_embeddings": True}),
    "llama with biases": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama without GQA": ("llama", {"num_key_value_heads": 6}),
    "llama with its own head size": ("llama", {"head_dim": 16}),
    "llama 3.1 rope": ("llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama linear rope": ("llama", {"rope_parameters": {**LLAMA3_ROPE, "rope_type": "linear", "factor": 4.0}}),
    "llama in shards": ("llama", {"shard": "20KB"}),
    "mistral": ("mistral", {"sliding_window": 256}),
    "qwen2": ("qwen2", {}),
    "qwen2 tied": ("qwen2", {"tie_word_embeddings": True}),
    "qwen3": ("qwen3", {"head_dim": 16}),
    "qwen3 with biases": ("qwen3", {"head_dim": 8, "attention_bias": True}),
    "gemma3": ("gemma3_text", GEMMA),
    "gemma3 with scaled rope": ("gemma3_text", {**GEMMA, "rope_parameters": GEMMA_ROPE, "query_pre_attn_scalar": 24}),
    "smollm3": ("smollm3", {"no_rope_layer_interval": 2, "tie_word_embeddings": True, "pad_token_id": None}),
    "smollm3 with windows": (
        "smollm3",
        {
            "no_rope_layers": [1, 0, 1],
            "use_sliding_window": True,
            "sliding_window": 32,
            "mlp_bias": True,
            "pad_token_id": None,
        },
    ),
}
VARIED = (
    "Order #48213 arrived on 2024-03-17 with a cracked lid; support refunded $12.99 within an hour.",
    "Dear team,\n\nplease find attached the minutes of Tuesday's meeting.\n\nKind regards,\nMarta",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n",
    "Das Hotel liegt ruhig, das Frühstück war ausgezeichnet, nur das WLAN fiel ständig aus.",
    "この映画は前半が退屈だが、最後の展開には驚いた。",
    "الفيلم طويل جدا لكن الموسيقى رائعة",
    '{"id": 7, "status": "failed", "error": "timeout after 30 s", "retries": [1, 2, 4]}',
    "lol that was sooo good 😂😂 cant wait 4 part 2!!!",
    "DOCUMENT:\nGreat phone, terrible charger.\n\nEvaluate TRUE or FALSE for the following question: "
    "Is the charger criticised?\nANSWER:",
    "No.",
)


def shipped_texts() -> list[str]:
    """Ten texts out of the samples: reviews of some 100 tokens, customer messages, medical sentences."""
    tables = {"reviews": 4, "support_messages": 3, "reports": 3}
    columns = {name: pyarrow.parquet.read_table(DATA / f"{name}.parquet")["text"].to_pylist() for name in tables}
    return [text[:450] for name, count in tables.items() for text in columns[name][:count]]


def all_logits(decoder: Decoder, tokens: Tensor) -> Tensor:
    attend = causal_attention(windows=decoder.config.windows)
    return decoder.logits(decoder.hidden(tokens, torch.arange(len(tokens)), attend), None)


@pytest.mark.parametrize("variant", VARIANTS)
def test_tiny_models_equal_transformers(make_tiny: Any, variant: str) -> None:
    architecture, options = VARIANTS[variant]
    tiny = make_tiny(architecture, **options)
    decoder = load_model(tiny.folder, dtype="float32").decoder
    tokens = torch.randint(0, 300, (150,), generator=torch.Generator().manual_seed(1))
    assert (all_logits(decoder, tokens) - tiny.logits(tokens)).abs().max() <= 1e-4


@pytest.mark.skipif(usable(torch.bfloat16) is None, reason="no C kernels here")
@pytest.mark.parametrize("variant", VARIANTS)
def test_our_own_products_are_as_near_to_transformers_as_torchs(make_tiny: Any, variant: str) -> None:
    architecture, options = VARIANTS[variant]
    wide = {"hidden_size": 64, "intermediate_size": 96, "num_attention_heads": 4}
    narrow = {"head_dim": 32} if "head_dim" in options else {}
    heads = {"num_key_value_heads": 4} if options.get("num_key_value_heads") == 6 else {}
    tiny = make_tiny(architecture, **{**wide, **options, **narrow, **heads})
    tokens = torch.randint(0, 300, (150,), generator=torch.Generator().manual_seed(1))
    expected = tiny.logits(tokens)
    errors = {}
    for library in ("torch", "amx"):
        decoder = load_model(tiny.folder, dtype="bfloat16", library=library).decoder
        errors[library] = float((all_logits(decoder, tokens) - expected).square().mean().sqrt())
    assert isinstance(decoder.steps, FusedSteps) == (architecture != "gemma3_text")
    assert errors["amx"] <= 1.2 * errors["torch"] and errors["torch"] < 0.2 * float(expected.std())


def test_sequences_side_by_side_equal_each_alone(make_tiny: Any) -> None:
    decoder = load_model(make_tiny("qwen3", head_dim=16).folder, dtype="float32").decoder
    first, second = torch.arange(5, 30), torch.arange(90, 97)
    positions = torch.cat([torch.arange(25), torch.arange(7)])
    together = decoder.logits(decoder.hidden(torch.cat([first, second]), positions, causal_attention([25, 7])))
    alone = torch.cat([all_logits(decoder, first), all_logits(decoder, second)])
    torch.testing.assert_close(together, alone, atol=1e-4, rtol=0)


@pytest.mark.parametrize("architecture", ["llama", "qwen2", "qwen3"])
def test_chosen_rows_equal_all_rows_then_chosen(make_tiny: Any, architecture: str) -> None:
    decoder = load_model(make_tiny(architecture).folder, dtype="float32").decoder
    tokens, positions, rows = torch.arange(40), torch.arange(40), torch.tensor([39, 3, 3, 20])
    chosen = decoder.hidden(tokens, positions, causal_attention(), rows)
    everything = decoder.hidden(tokens, positions, causal_attention())
    torch.testing.assert_close(chosen, everything[rows], atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("tied", [True, False])
def test_the_restricted_head_equals_columns_of_the_full_head(make_tiny: Any, tied: bool) -> None:
    decoder = load_model(make_tiny("llama", tie_word_embeddings=tied).folder, dtype="float32").decoder
    hidden = decoder.hidden(torch.arange(9), torch.arange(9), causal_attention())
    ids = torch.tensor([299, 0, 17, 17])
    restricted = decoder.logits(hidden, ids)
    assert restricted.dtype == torch.float32 and restricted.shape == (9, 4)
    torch.testing.assert_close(restricted, decoder.logits(hidden)[:, ids], atol=1e-5, rtol=1e-5)


def test_bfloat16_stays_close_to_float32(make_tiny: Any) -> None:
    folder = make_tiny("qwen3", head_dim=16).folder
    exact, short = load_model(folder, dtype="float32").decoder, load_model(folder, dtype="bfloat16").decoder
    assert short.dtype == torch.bfloat16
    tokens = torch.arange(40)
    expected, found = all_logits(exact, tokens), all_logits(short, tokens)
    assert found.dtype == torch.float32
    assert torch.nn.functional.cosine_similarity(found, expected).min() > 0.995


def test_runs_under_inference_mode_and_leaves_no_gradients(make_tiny: Any) -> None:
    decoder = load_model(make_tiny("llama").folder, dtype="float32").decoder
    with torch.inference_mode():
        inside = all_logits(decoder, torch.arange(5))
    outside = all_logits(decoder, torch.arange(5))
    assert not outside.requires_grad and torch.equal(inside, outside)


DEFAULT_CONFIG = {
    "vocab_size": 49152,
    "hidden_size": 576,
    "intermediate_size": 1536,
    "num_hidden_layers": 30,
    "num_attention_heads": 9,
    "num_key_value_heads": 3,
    "max_position_embeddings": 8192,
    "rms_norm_eps": 1e-5,
    "rope_parameters": {"rope_type": "default", "rope_theta": 100_000.0},
    "tie_word_embeddings": True,
}
"""SmolLM2-135M-Instruct as published."""


@pytest.fixture
def default_oracle(default_model_file: Path) -> Iterator[Any]:
    """The default model in transformers. One thread: two that wait for each other are slow on a busy machine."""
    source = GgufWeights(default_model_file)
    state = {name: source.read(name) for name in source.names()}
    config = AutoConfig.for_model("llama", **DEFAULT_CONFIG)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield LlamaForCausalLM.from_pretrained(None, config=config, state_dict=state, dtype=torch.float32).eval()
    torch.set_num_threads(threads)


def test_the_default_model_equals_transformers_on_real_texts(default_model: LoadedModel, default_oracle: Any) -> None:
    encoded = default_model.tokenizer.encode([*shipped_texts(), *VARIED])
    assert len(encoded) == 20 and encoded.lengths.max() >= 90
    tokens = torch.from_numpy(encoded.values).long()
    positions = torch.cat([torch.arange(length) for length in encoded.lengths.tolist()])
    last = torch.from_numpy(encoded.offsets[1:] - 1)
    attend = causal_attention(encoded.lengths.tolist())
    found = default_model.decoder.logits(default_model.decoder.hidden(tokens, positions, attend, last))
    for number, logits in enumerate(found):
        with torch.inference_mode():
            expected = default_oracle(torch.from_numpy(encoded[number]).long()[None]).logits[0, -1]
        assert (logits - expected).abs().max() <= 1e-3
        assert logits.argmax() == expected.argmax()


def test_the_default_model_knows_a_capital(default_model: LoadedModel) -> None:
    tokens = torch.from_numpy(default_model.tokenizer.encode(["The capital of France is"]).values)
    assert default_model.tokenizer.decode([int(all_logits(default_model.decoder, tokens)[-1].argmax())]) == " Paris"


@pytest.mark.slow
def test_the_default_models_weights_are_those_that_transformers_reads_by_itself(default_model_file: Path) -> None:
    with torch.device("meta"):
        names_only = AutoModelForCausalLM.from_config(AutoConfig.for_model("llama", **DEFAULT_CONFIG))
    theirs = load_gguf_checkpoint(default_model_file, return_tensors=True, model_to_load=names_only)["tensors"]
    ours = GgufWeights(default_model_file)
    assert ours.names() == theirs.keys()
    for name, tensor in theirs.items():
        assert torch.equal(ours.read(name), torch.as_tensor(tensor)), name
