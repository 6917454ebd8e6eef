"""SentencePiece BPE tokenizers out of GGUF metadata (Gemma): pieces with scores, merges by score, bytes at last.

Kudo and Richardson 2018, arXiv 1808.06226. Merges are not stored: a piece may come from any two pieces that make it,
and of two neighbours that could be joined those whose piece scores highest are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers

from quail_frames.errors import ModelError

NORMAL, CONTROL, USER_DEFINED = 1, 3, 4
SPACE = "\u2581"


def sentencepiece_bpe(metadata: Mapping[str, Any], where: str) -> tuple[Tokenizer, bool]:
    """The tokenizer that the metadata describes, and whether the model expects BOS before a prompt.

    Raises
    ------
    ModelError
        The vocabulary puts a space before every text, which is not defined here.
    """
    if metadata.get("tokenizer.ggml.add_space_prefix", True):
        raise ModelError(
            f"{where} holds a vocabulary of kind 'llama' that puts a space before every text, which is not read from "
            "GGUF. Use the model's safetensors folder, which has its tokenizer.json."
        )
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = list(merges_by_score(tokens, metadata["tokenizer.ggml.scores"], kinds))
    unknown = tokens[metadata.get("tokenizer.ggml.unknown_token_id", 0)]
    vocabulary = {token: number for number, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocabulary, merges, unk_token=unknown, fuse_unk=True, byte_fallback=True))
    tokenizer.normalizer = normalizers.Replace(" ", SPACE)
    tokenizer.decoder = decoders.Sequence([decoders.Replace(SPACE, " "), decoders.ByteFallback(), decoders.Fuse()])
    listed = [token for token, kind in zip(tokens, kinds, strict=True) if kind in (CONTROL, USER_DEFINED)]
    named = [token for token in listed if token.strip(f" \n\t{SPACE}")]
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in named])
    # Runs of line breaks and of spaces are whole tokens wherever they stand; spaces are found once they are replaced.
    runs = [token for token in listed if token and not token.strip(f" \n\t{SPACE}")]
    tokenizer.add_tokens([AddedToken(run, special=False, normalized=SPACE in run) for run in runs])
    return tokenizer, bool(metadata.get("tokenizer.ggml.add_bos_token", True))


def merges_by_score(tokens: Sequence[str], scores: Sequence[float], kinds: Sequence[int]) -> Iterator[tuple[str, str]]:
    """Pairs of pieces that make a piece, the highest score first.

    >>> list(merges_by_score(["a", "b", "ab", "aba"], [-3, -4, -1, -2], [1, 1, 1, 1]))
    [('a', 'b'), ('ab', 'a')]
    """
    pieces = {token for token, kind in zip(tokens, kinds, strict=True) if kind == NORMAL}
    for number in sorted(range(len(tokens)), key=lambda place: -scores[place]):
        piece = tokens[number]
        if piece in pieces:
            cuts = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
            yield from ((left, right) for left, right in cuts if left in pieces and right in pieces)
