"""Byte-level BPE tokenizers out of GGUF metadata, which keeps a vocabulary but names its text rules only."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers
from tokenizers.pre_tokenizers import ByteLevel, Digits, PreTokenizer, Split

from quail_frames.errors import ModelError

CONTROL, USER_DEFINED = 3, 4
_WORDS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def _by_regex(digits: str) -> PreTokenizer:
    split = Split(Regex(f"{_WORDS}|{digits}|{_REST}"), behavior="isolated")
    return pre_tokenizers.Sequence([split, ByteLevel(add_prefix_space=False, use_regex=False)])


def _gpt2() -> PreTokenizer:
    return ByteLevel(add_prefix_space=False, use_regex=True)


def _smollm() -> PreTokenizer:
    return pre_tokenizers.Sequence([Digits(individual_digits=True), _gpt2()])


def _qwen2() -> PreTokenizer:
    return _by_regex(r"\p{N}")


def _llama3() -> PreTokenizer:
    return _by_regex(r"\p{N}{1,3}")


PRE_TOKENIZERS: dict[str, Callable[[], PreTokenizer]] = {
    "gpt-2": _gpt2,
    "smollm": _smollm,
    "qwen2": _qwen2,
    "deepseek-r1-qwen": _qwen2,
    "llama-bpe": _llama3,
    "llama3": _llama3,
    "llama-v3": _llama3,
}
"""Text rules by the name in `tokenizer.ggml.pre`."""


def byte_level_bpe(metadata: Mapping[str, Any], where: str) -> tuple[Tokenizer, bool]:
    """The tokenizer that the metadata describes, and whether the model expects BOS before a prompt.

    Raises
    ------
    ModelError
        The vocabulary is not byte-level BPE, or its text rules are not known.
    """
    kind, rules = metadata.get("tokenizer.ggml.model"), metadata.get("tokenizer.ggml.pre")
    if kind != "gpt2" or rules not in PRE_TOKENIZERS:
        raise ModelError(
            f"{where} holds a vocabulary of kind {kind!r} with the text rules {rules!r}; read from GGUF are byte-level "
            f"BPE vocabularies ('gpt2') with {', '.join(PRE_TOKENIZERS)}. Use the model's safetensors folder, which "
            "has its tokenizer.json."
        )
    llama3 = PRE_TOKENIZERS[rules] is _llama3
    tokens = metadata["tokenizer.ggml.tokens"]
    merges = [tuple(merge.split(" ", 1)) for merge in metadata["tokenizer.ggml.merges"]]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges, ignore_merges=llama3))
    if PRE_TOKENIZERS[rules] is _qwen2:
        tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = PRE_TOKENIZERS[rules]()
    tokenizer.decoder = decoders.ByteLevel()
    kinds = metadata["tokenizer.ggml.token_type"]
    tokenizer.add_special_tokens(
        [
            AddedToken(token, special=True, normalized=False)
            for token, kind in zip(tokens, kinds, strict=True)
            if kind in (CONTROL, USER_DEFINED) and token.strip()
        ]
    )
    return tokenizer, bool(metadata.get("tokenizer.ggml.add_bos_token", llama3))
