"""A tiny random model with letters as tokens, and training sets of a few rows a task."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_letters

import polars as pl
import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM

from quail_frames.runtime.models.load import LoadedModel, load_model
from quail_frames.tuning.examples import Prompter


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three random layers of width 48, as files."""
    torch.manual_seed(7)
    config = LlamaConfig(
        vocab_size=320,
        hidden_size=48,
        intermediate_size=80,
        num_hidden_layers=3,
        num_attention_heads=6,
        num_key_value_heads=2,
        max_position_embeddings=4096,
        tie_word_embeddings=True,
    )
    model = LlamaForCausalLM(config).eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, mean=1.0 if parameter.ndim == 1 else 0.0, std=0.15)
    folder = tmp_path_factory.mktemp("tiny")
    model.save_pretrained(folder)
    _tokenizer().save(str(folder / "tokenizer.json"))
    return folder


@pytest.fixture(scope="session")
def tiny_model(tiny_folder: Path) -> LoadedModel:
    return load_model(tiny_folder, dtype="float32")


def _tokenizer() -> Tokenizer:
    """One token for each byte, and for each letter behind a space."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*alphabet, *(f"Ġ{letter}" for letter in ascii_letters)]
    vocabulary = {name: number for number, name in enumerate(names)}
    merges = [("Ġ", letter) for letter in ascii_letters]
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


@pytest.fixture(scope="session")
def prompter(tiny_model: LoadedModel) -> Prompter:
    return Prompter(tiny_model.tokenizer)


@pytest.fixture(scope="session")
def training_sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files like those of the recipe, with made-up rows."""
    folder = tmp_path_factory.mktemp("sets")
    rows: dict[str, list[dict[str, object]]] = {}

    def add(file: str, task: str, label: str, number: int, **fields: object) -> None:
        extra = fields.pop("extra", None)
        text = f"{task.replace('_', ' ')} {label} example {number}"
        row = {"id": f"{task} {label} {number}", "task": task, "text": text, "text2": None, "question": None}
        row |= {"label": label, "extra": json.dumps(extra) if extra else None} | fields
        rows.setdefault(file, []).append(row)

    for number in range(50):
        for file, task, labels in TASKS:
            for label in labels.split("|"):
                extra = EXTRA.get(task, {}) | ({"labels": [label]} if task == "emotion" else {})
                text2 = f"statement {number}" if task in WITH_SECOND else None
                add(file, task, label, number, text2=text2, question=f"Is it number {number}?", extra=extra)
    for file, content in rows.items():
        pl.DataFrame(content).write_parquet(folder / f"{file}.parquet")
    return folder


EXTRA: dict[str, dict[str, object]] = {
    "movie_snippet_sentiment": {"mean_rating": 0.6},
    "tweet_sentiment": {"mean_rating": -0.5},
    "review_sentence_opinion": {"product": "MP3 player"},
    "clinc_intent": {"domain": "work"},
    "drug_event": {"drug": ["aspirin"], "effect": ["rash"]},
    "agent_conversation_action": {"tools_called": ["calculate"]},
}
WITH_SECOND = (
    "nli",
    "answer_relevance",
    "note_matches_conversation",
    "conclusion_belongs_to_abstract",
)
INTENTS = (
    "pto balance|pto request|payday|income|taxes|w2|meeting schedule|direct deposit|schedule meeting|rollover 401k"
)
HWU = (
    "alarm set|alarm query|alarm remove|news query|play radio|play game|qa stock|qa maths|lists query|lists remove|"
    "iot coffee|iot cleaning|email query|social post|social query|play podcasts|weather query|calendar set|music query|"
    "calendar query|calendar remove|cooking recipe|datetime query|datetime convert|general joke|general repeat|"
    "general praise|transport taxi|transport query|transport ticket|transport traffic|takeaway order|takeaway query|"
    "recommendation movies|recommendation events|play music|play audiobook|music likeness|music settings|qa currency|"
    "qa definition|qa factoid|email sendemail|email addcontact|audio volume up|audio volume down|audio volume mute|"
    "general affirm|general negate|general explain|general confirm"
)
TASKS = (
    ("sentiment", "movie_snippet_sentiment", "positive|negative|neutral|weak"),
    ("sentiment", "tweet_sentiment", "positive|negative|neutral|weak"),
    ("sentiment", "product_pros_or_cons", "pros|cons"),
    ("sentiment", "movie_review_long_sentiment", "positive|negative"),
    ("product_aspects", "review_sentence_opinion", "positive|negative|mixed|no opinion on a feature"),
    ("product_aspects", "aspect_sentiment", "positive|negative"),
    ("intents", "clinc_intent", INTENTS + "|out of scope"),
    ("intents", "hwu_intent", HWU),
    ("intents", "snips_intent", "get weather|play music|rate a book|book a restaurant"),
    ("nli", "nli", "entailment|contradiction|neutral"),
    ("yes_no_passages", "strategyqa_yes_no", "yes|no"),
    ("yes_no_passages", "pubmedqa_yes_no", "yes|no|maybe"),
    ("yes_no_passages", "abstract_subject_yes_no", "yes|no"),
    ("yes_no_passages", "conclusion_belongs_to_abstract", "yes|no"),
    ("health_texts", "health_text_subject", "yes|no"),
    ("health_texts", "answer_relevance", "relevant|not relevant"),
    ("health_texts", "health_text_kind", "causes|symptoms|outlook"),
    ("legal", "nda_clause", "yes|no"),
    ("legal", "overruling", "yes|no"),
    ("legal", "terms_of_service_clause", "arbitration|jurisdiction|other"),
    ("dialogues", "note_matches_conversation", "yes|no"),
    ("dialogues", "agent_conversation_action", "none|book reservation"),
    ("dialogues", "visit_conversation_topic", "allergies|medications|plan"),
    ("dialogues", "coffee_bar_request", "orders one drink|off topic"),
    ("drug_reports", "drug_event", "adverse event|therapeutic event|both"),
    ("emotions", "emotion", "joy|anger|neutral"),
    ("subjectivity", "subjective_or_objective", "subjective|objective"),
    ("topics_genres", "arxiv_field", "biology|mathematics|astrophysics"),
    ("topics_genres", "genre", "email|essay|jokes"),
    ("topics_genres", "presidential_speech", "State of the Union address|inaugural address"),
    ("languages", "language", "Czech|Dutch|Tamil"),
    ("abstract_roles", "abstract_sentence_role", "method|result|other"),
    ("abstract_roles", "abstract_section_role", "method|result"),
    ("booking_messages", "booking_message_mentions", "none|date|date; time"),
    ("safety", "comment_toxicity", "toxic words|no toxic words"),
    ("safety", "hateful_or_not", "hateful|non-hateful"),
    ("safety", "moderation_category", "flagged|not flagged"),
)
