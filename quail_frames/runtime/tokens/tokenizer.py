"""Texts to token ids and back, over the `tokenizers` library; from tokenizer.json or from a GGUF file's metadata.

A text is always plain: what looks like a control token in it is encoded as characters.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import tokenizers

from quail_frames.errors import CallError, ModelError
from quail_frames.runtime.tokens.gguf_sentencepiece import sentencepiece_bpe
from quail_frames.runtime.tokens.gguf_vocabulary import byte_level_bpe
from quail_frames.runtime.tokens.ragged import Int32, Ragged, offsets_of


class Tokenizer:
    """The tokenizer of a model.

    Ids are those of the model's own tokenizer, without any BOS or EOS.

    Attributes
    ----------
    bos_id
        The token that the model expects before every prompt; None where it expects none.
    vocab_size
        Number of ids, control tokens included.
    """

    def __init__(self, backend: tokenizers.Tokenizer, bos_id: int | None) -> None:
        backend.no_truncation()
        backend.no_padding()
        backend.encode_special_tokens = True
        self._backend = backend
        self.bos_id = bos_id
        self.vocab_size: int = backend.get_vocab_size(with_added_tokens=True)

    @staticmethod
    def from_folder(folder: Path, bos_id: int | None = None) -> Tokenizer:
        """From a Hugging Face folder's tokenizer.json.

        Parameters
        ----------
        bos_id
            The config's BOS; used where tokenizer_config.json says to add one without naming it.

        Raises
        ------
        ModelError
            The file is missing or unreadable.
        """
        path = folder / "tokenizer.json"
        if not path.exists():
            raise ModelError(
                f"{path} is missing. A model needs its tokenizer in this form; transformers writes it "
                "(AutoTokenizer.from_pretrained(...).save_pretrained(...))."
            )
        try:
            backend = tokenizers.Tokenizer.from_str(_with_every_control_token_special(path.read_text(encoding="utf-8")))
        except Exception as error:  # the library raises bare Exception
            raise ModelError(f"{path} is not a readable tokenizer ({error}). Fetch it again.") from error
        return Tokenizer(backend, _added_bos(backend, folder / "tokenizer_config.json", bos_id))

    @staticmethod
    def from_gguf(metadata: Mapping[str, Any], where: str) -> Tokenizer:
        """From a GGUF file's metadata.

        Raises
        ------
        ModelError
            The vocabulary is of a kind that is not read.
        """
        read = sentencepiece_bpe if metadata.get("tokenizer.ggml.model") == "llama" else byte_level_bpe
        backend, adds_bos = read(metadata, where)
        return Tokenizer(backend, metadata.get("tokenizer.ggml.bos_token_id") if adds_bos else None)

    def encode(self, texts: Sequence[str]) -> Ragged:
        """Ids of each text, as plain text.

        Raises
        ------
        CallError
            A text holds half of a surrogate pair, which is no character.
        """
        try:
            encodings = self._backend.encode_batch_fast(list(texts), add_special_tokens=False)
        except (TypeError, UnicodeEncodeError) as error:
            raise CallError(_unencodable(texts, error)) from error
        lists = [encoding.ids for encoding in encodings]
        lengths = np.fromiter(map(len, lists), dtype=np.int64, count=len(lists))
        values = np.fromiter(chain.from_iterable(lists), dtype=np.int32, count=int(lengths.sum()))
        return Ragged(values, offsets_of(lengths))

    def encode_markers(self, text: str) -> Int32:
        """Ids of a text in which names of control tokens stand for these tokens; for a chat model's turn markers."""
        if not self.control_ids:
            return self.encode([text]).values
        names = "|".join(re.escape(name) for name in sorted(self.control_ids, key=len, reverse=True))
        parts = [part for part in re.split(f"({names})", text) if part]
        ids = [[self.control_ids[part]] if part in self.control_ids else self.encode([part]).values for part in parts]
        return Ragged.of(ids).values

    def decode(self, ids: Sequence[int] | Int32) -> str:
        """The text of the ids, control tokens by their names."""
        text: str = self._backend.decode([int(token) for token in ids], skip_special_tokens=False)
        return text

    def token_id(self, text: str) -> int | None:
        """The id of a plain text that is a single token; None where it is not."""
        ids = self.encode([text]).values
        return int(ids[0]) if len(ids) == 1 else None

    @cached_property
    def control_ids(self) -> dict[str, int]:
        """Control tokens by name; none of them comes out of `encode`."""
        added = self._backend.get_added_tokens_decoder()
        return {token.content: number for number, token in added.items() if token.special}

    @cached_property
    def identity(self) -> str:
        """Stable hash of the vocabulary and its rules: 32 hexadecimal digits."""
        return hashlib.blake2b(self._backend.to_str().encode(), digest_size=16).hexdigest()


def _with_every_control_token_special(text: str) -> str:
    """tokenizer.json in which every added token but white space is special, so that plain text cannot produce it.

    Some models leave tokens such as Qwen's `<|fim_prefix|>` unmarked; runs of white space
    (GPT-NeoX) are ordinary text.
    """
    data = json.loads(text)
    for token in data.get("added_tokens", []):
        token["special"] = token["special"] or bool(token["content"].strip())
    return json.dumps(data, ensure_ascii=False)


def _added_bos(backend: tokenizers.Tokenizer, config: Path, bos_id: int | None) -> int | None:
    """The BOS that the model's own tokenizer puts before a text, found by asking it."""
    settings = json.loads(config.read_text(encoding="utf-8")) if config.exists() else {}
    if settings.get("add_bos_token") is False:
        return None
    plain = backend.encode("a", add_special_tokens=False).ids
    with_added = backend.encode("a", add_special_tokens=True).ids
    start = with_added[: len(with_added) - len(plain)]
    if start and with_added[1 : 1 + len(plain)] == plain:
        return int(start[0])
    return bos_id if settings.get("add_bos_token") else None


def _unencodable(texts: Sequence[str], error: Exception) -> str:
    for number, text in enumerate(texts):
        if not isinstance(text, str):
            return f"Text {number} is a {type(text).__name__}, not a string."
        surrogate = re.search("[\ud800-\udfff]", text)
        if surrogate:
            return (
                f"Text {number} holds a lone surrogate (U+{ord(surrogate[0]):04X}) at character {surrogate.start()}, "
                "which is no character. Remove it, or decode the source with errors='replace'."
            )
    return f"The texts cannot be encoded: {error}"
