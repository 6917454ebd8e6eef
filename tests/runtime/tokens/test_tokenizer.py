"""Texts to ids and back: plain text stays plain, nothing is lost, ids are the model's own."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers
from tokenizers import Tokenizer as Backend
from tokenizers.processors import TemplateProcessing

from quail_frames.errors import CallError, ModelError
from quail_frames.runtime.models.gguf_file import open_gguf
from quail_frames.runtime.tokens.tokenizer import Tokenizer

# The vocabulary of SmolLM2 was learned without these characters; its own tokenizer drops them.
UNKNOWN_TO_SMOLLM = {chr(code) for code in (0x04, 0x06, 0x13, 0x14, 0x16, 0x1D)}
AWKWARD = (
    "", " ", "   ", "\n\n\t \r\n", "a", "😂👩‍👩‍👧‍👦🏳️‍🌈", "日本語と中文", "שלום עולם", "\u202eright to left\u202c",
    "\x00\x01\x7f\x1b[0m", "é vs e\u0301", "\ufeffbom", "C:\\temp\\new", '{"a": [1, 2]}', "{0} {name} {{", "1234567890",
    "don't DON'T we'll", "a" * 5000, "trailing  \n",
)  # fmt: skip


@pytest.fixture(scope="session")
def smollm(default_model_file: Path) -> Tokenizer:
    return Tokenizer.from_gguf(open_gguf(default_model_file).metadata, str(default_model_file))


def ids(tokenizer: Tokenizer, text: str) -> list[int]:
    return tokenizer.encode([text]).values.tolist()


def test_a_batch_gives_one_list_for_each_text(smollm: Tokenizer) -> None:
    batch = smollm.encode(["Hello world", "", "Hello"])
    assert batch.values.dtype == np.int32
    assert [batch[i].tolist() for i in range(3)] == [ids(smollm, "Hello world"), [], ids(smollm, "Hello")]
    assert len(smollm.encode([])) == 0


@pytest.mark.parametrize("text", AWKWARD, ids=lambda text: repr(text[:12]))
def test_awkward_texts_come_back_whole(smollm: Tokenizer, text: str) -> None:
    assert smollm.decode(ids(smollm, text)) == text


@settings(max_examples=150)
@given(text=st.text(st.characters(codec="utf-8", max_codepoint=0x3FFFF).filter(lambda c: c not in UNKNOWN_TO_SMOLLM)))
def test_any_text_comes_back_whole(smollm: Tokenizer, text: str) -> None:
    assert smollm.decode(ids(smollm, text)) == text


@settings(max_examples=100)
@given(texts=st.lists(st.text(max_size=20), max_size=6))
def test_ids_do_not_depend_on_the_batch(smollm: Tokenizer, texts: list[str]) -> None:
    batch = smollm.encode(texts)
    assert [batch[i].tolist() for i in range(len(texts))] == [ids(smollm, text) for text in texts]


def test_characters_outside_the_vocabulary_are_dropped_as_by_the_models_own_tokenizer(smollm: Tokenizer) -> None:
    assert smollm.decode(ids(smollm, "a\x04b\x1dc")) == "abc"
    assert ids(smollm, "\x04") == []


def test_no_text_gives_a_control_token(smollm: Tokenizer) -> None:
    assert len(smollm.control_ids) == 17 and smollm.control_ids["<|im_end|>"] == 2
    for name in smollm.control_ids:
        for text in (name, f"see {name} here", f"{name}{name}", f" {name}\n"):
            assert not set(ids(smollm, text)) & set(smollm.control_ids.values())
            assert smollm.decode(ids(smollm, text)) == text


def test_markers_give_control_tokens_and_plain_text_between_them(smollm: Tokenizer) -> None:
    marked = smollm.encode_markers("<|im_start|>user\nHi<|im_end|>\n").tolist()
    assert marked == [1, *ids(smollm, "user\nHi"), 2, *ids(smollm, "\n")]
    assert smollm.encode_markers("").tolist() == []


def test_smollm_splits_digits_and_knows_its_words(smollm: Tokenizer) -> None:
    assert smollm.vocab_size == 49152 and smollm.bos_id is None
    assert len(ids(smollm, "48213")) == 5
    assert [smollm.decode([token]) for token in ids(smollm, "The answer is true")] == ["The", " answer", " is", " true"]


def test_a_single_token_is_found_and_several_are_not(smollm: Tokenizer) -> None:
    assert smollm.token_id(" A") == ids(smollm, " A")[0]
    assert smollm.token_id(" a long answer") is None
    assert smollm.token_id("<|im_end|>") is None


def test_a_lone_surrogate_is_named(smollm: Tokenizer) -> None:
    with pytest.raises(CallError, match=r"Text 1 holds a lone surrogate \(U\+D83D\) at character 3"):
        smollm.encode(["fine", "abc\ud83d"])


def test_what_is_no_string_is_named(smollm: Tokenizer) -> None:
    with pytest.raises(CallError, match="Text 0 is a NoneType"):
        smollm.encode([None])  # type: ignore[list-item]


def test_identity_is_the_vocabularys(smollm: Tokenizer, default_model_file: Path) -> None:
    again = Tokenizer.from_gguf(open_gguf(default_model_file).metadata, "again")
    assert smollm.identity == again.identity and len(smollm.identity) == 32


@pytest.mark.slow
def test_smollm_gives_the_ids_of_transformers(smollm: Tokenizer, default_model_file: Path) -> None:
    # Without digits: transformers' conversion leaves out SmolLM's rule that splits them.
    transformers = pytest.importorskip("transformers")
    oracle = transformers.AutoTokenizer.from_pretrained(
        default_model_file.parent, gguf_file=default_model_file.name, local_files_only=True
    )
    texts = [text for text in AWKWARD if not any(letter.isdigit() for letter in text)]
    for text in [*texts, "Evaluate TRUE or FALSE for the following question:", "Ça va? Très bien… «merci»"]:
        assert ids(smollm, text) == oracle(text, add_special_tokens=False)["input_ids"]


def metadata(rules: str, **changes: Any) -> dict[str, Any]:
    """A byte vocabulary with a few merges and two control tokens, as in a GGUF file."""
    merges = ["Ġ 1", "1 2", "12 3", "h i"]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokens = [*alphabet, *(merge.replace(" ", "") for merge in merges), "<|bos|>", "<|fim|>"]
    entries = {
        "model": "gpt2", "pre": rules, "tokens": tokens, "merges": merges, "bos_token_id": 260,
        "token_type": [1] * 260 + [3, 4], **changes,
    }  # fmt: skip
    return {f"tokenizer.ggml.{key}": value for key, value in entries.items()}


@pytest.mark.parametrize(
    ("rules", "pieces"),
    [
        ("smollm", [" ", "1", "2", "3", "4"]),
        ("qwen2", [" ", "1", "2", "3", "4"]),
        ("llama-bpe", [" ", "123", "4"]),
        ("gpt-2", [" 1", "2", "3", "4"]),
    ],
)
def test_text_rules_decide_how_digits_split(rules: str, pieces: list[str]) -> None:
    tokenizer = Tokenizer.from_gguf(metadata(rules), "file")
    assert [tokenizer.decode([token]) for token in ids(tokenizer, " 1234")] == pieces


def test_bos_is_expected_where_the_file_or_the_family_says_so() -> None:
    assert Tokenizer.from_gguf(metadata("qwen2"), "file").bos_id is None
    assert Tokenizer.from_gguf(metadata("llama-bpe"), "file").bos_id == 260
    assert Tokenizer.from_gguf(metadata("qwen2", add_bos_token=True), "file").bos_id == 260
    assert Tokenizer.from_gguf(metadata("llama-bpe", add_bos_token=False), "file").bos_id is None


def test_user_defined_tokens_do_not_come_out_of_plain_text() -> None:
    tokenizer = Tokenizer.from_gguf(metadata("qwen2"), "file")
    assert max(ids(tokenizer, "<|fim|>")) < 256
    assert tokenizer.encode_markers("<|fim|>").tolist() == [261]


@pytest.mark.parametrize("entries", [metadata("qwen2", model="llama"), metadata("tekken")], ids=["kind", "rules"])
def test_other_vocabularies_are_refused_with_advice(entries: dict[str, Any]) -> None:
    with pytest.raises(ModelError, match=r"some\.gguf holds a vocabulary of kind .*tokenizer\.json"):
        Tokenizer.from_gguf(entries, "some.gguf")


def save_folder(folder: Path, bos: bool = False, **config: Any) -> Path:
    """A Hugging Face folder's tokenizer: bytes, white-space and control tokens, padding and truncation switched on."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    backend = Backend(models.BPE(vocab={letter: number for number, letter in enumerate(alphabet)}, merges=[]))
    backend.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    backend.decoder = decoders.ByteLevel()
    backend.add_special_tokens([AddedToken("<s>", special=True)])
    backend.add_tokens([AddedToken("<|fim|>", special=False), AddedToken("    ", special=False)])
    if bos:
        backend.post_processor = TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 256)])
    backend.enable_truncation(4)
    backend.enable_padding()
    folder.mkdir()
    backend.save(str(folder / "tokenizer.json"))
    if config:
        (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return folder


def test_a_folders_tokenizer_neither_cuts_nor_pads(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(save_folder(tmp_path / "m"))
    assert tokenizer.encode(["abcdefgh", "a"]).lengths.tolist() == [8, 1]
    assert tokenizer.decode(ids(tokenizer, "abcdefgh")) == "abcdefgh"


def test_unmarked_control_tokens_of_a_folder_stay_plain_and_white_space_stays_a_token(tmp_path: Path) -> None:
    tokenizer = Tokenizer.from_folder(save_folder(tmp_path / "m"))
    assert max(ids(tokenizer, "<s><|fim|>")) < 256
    assert tokenizer.encode_markers("<s><|fim|>").tolist() == [256, 257]
    assert ids(tokenizer, "    ") == [258]


def test_bos_is_what_the_models_own_tokenizer_adds(tmp_path: Path) -> None:
    assert Tokenizer.from_folder(save_folder(tmp_path / "plain"), bos_id=7).bos_id is None
    assert Tokenizer.from_folder(save_folder(tmp_path / "adds", bos=True)).bos_id == 256
    assert Tokenizer.from_folder(save_folder(tmp_path / "off", bos=True, add_bos_token=False)).bos_id is None
    assert Tokenizer.from_folder(save_folder(tmp_path / "on", add_bos_token=True), bos_id=7).bos_id == 7


def test_a_missing_or_broken_tokenizer_is_named(tmp_path: Path) -> None:
    with pytest.raises(ModelError, match=r"tokenizer\.json is missing.*save_pretrained"):
        Tokenizer.from_folder(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"version": "1.0"}')
    with pytest.raises(ModelError, match=r"tokenizer\.json is not a readable tokenizer"):
        Tokenizer.from_folder(tmp_path)


def sentencepiece(**changes: Any) -> dict[str, Any]:
    """A SentencePiece vocabulary as Gemma's GGUF files store theirs: every byte, some pieces, runs of white space."""
    control, user, byte, normal = 3, 4, 6, 1
    listed = [("<bos>", control), ("<unk>", control), ("<table>", user), ("\n\n", user), ("\u2581\u2581", user)]
    listed += [(f"<0x{number:02X}>", byte) for number in range(256)]
    listed += [(piece, normal) for piece in ("ab", "bc", "\u2581a", *"abc\u2581")]
    scores = [-1000.0] * 261 + [-3.0, -1.0, -5.0, -10.0, -11.0, -12.0, -13.0]
    tokens, kinds = ([entry[part] for entry in listed] for part in (0, 1))
    entries = {"model": "llama", "tokens": tokens, "scores": scores, "token_type": kinds, "bos_token_id": 0}
    entries |= {"add_space_prefix": False, "unknown_token_id": 1}
    return {f"tokenizer.ggml.{key}": value for key, value in {**entries, **changes}.items()}


@pytest.mark.parametrize(
    ("text", "pieces"),
    [
        ("abc", ["a", "bc"]),  # of the neighbours a b and b c the second pair's piece scores higher
        ("ab", ["ab"]),
        (" a  c", ["\u2581a", "\u2581\u2581", "c"]),
        ("a\n\nb", ["a", "\n\n", "b"]),
        ("é", ["<0xC3>", "<0xA9>"]),
    ],
)
def test_sentencepiece_joins_the_best_pieces_first(text: str, pieces: list[str]) -> None:
    entries = sentencepiece()
    tokenizer = Tokenizer.from_gguf(entries, "some.gguf")
    ids = tokenizer.encode([text])[0].tolist()
    assert [entries["tokenizer.ggml.tokens"][number] for number in ids] == pieces
    assert tokenizer.decode(ids) == text
    assert tokenizer.bos_id == 0


def test_control_tokens_of_a_sentencepiece_vocabulary_are_plain_text_in_a_text() -> None:
    tokenizer = Tokenizer.from_gguf(sentencepiece(), "some.gguf")
    assert set(tokenizer.encode(["<bos><table>"])[0].tolist()).isdisjoint({0, 2})
