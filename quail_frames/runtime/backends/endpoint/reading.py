"""Reading a reply, strictly: an allowed answer, or its likelihood beside the others', or trouble."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from quail_frames.runtime.backends.asking import Reply
from quail_frames.runtime.backends.endpoint.troubles import Refused, Retry, WrongAnswer
from quail_frames.runtime.readouts.answers import AnswerSpec

SMALLEST = 1e-12
"""Least probability that is left for what the endpoint does not list."""


def read_reply(content: Any, spec: AnswerSpec) -> Reply:
    """The reply's answer.

    Raises
    ------
    Trouble
        There is none: no choice, no text, no likelihoods, or none of the allowed answers.
    """
    choice = _choice(content)
    text = _text(choice)
    fresh, reused = _usage(content)
    logits = _likelihoods(choice, text, spec) if spec.scored else _chosen(text, spec)
    return Reply(logits.astype(np.float32)[None, :], fresh=fresh, reused=reused)


def _choice(content: Any) -> Mapping[str, Any]:
    choices = content.get("choices") if isinstance(content, dict) else None
    if not isinstance(choices, list) or not choices or not isinstance(choices[0], dict):
        raise Retry("the reply holds no choice")
    return choices[0]


def _text(choice: Mapping[str, Any]) -> str:
    """What the model said, in a chat or as a completion."""
    message = choice.get("message")
    text = message.get("content") if isinstance(message, dict) else choice.get("text")
    if isinstance(message, dict) and message.get("refusal"):
        raise Refused(f"the model refuses: {message['refusal']}")
    if not isinstance(text, str):
        if choice.get("finish_reason") == "content_filter":
            raise Refused("the endpoint's content filter withholds the answer")
        raise Retry(f"the reply holds no text (finish_reason={choice.get('finish_reason')!r})")
    return text


def _chosen(text: str, spec: AnswerSpec) -> np.ndarray:
    """0 for the answer given, minus infinity for the others."""
    said = _unwrapped(text)
    for number, texts in enumerate(spec.answers):
        if said in texts:
            logits = np.full(len(spec.answers), -np.inf)
            logits[number] = 0.0
            return logits
    raise WrongAnswer(said)


def _unwrapped(text: str) -> str:
    """The text without white space around it, or the `answer` of a JSON object as we ask for it."""
    said = text.strip()
    if said.startswith("{"):
        try:
            parsed = json.loads(said)
        except json.JSONDecodeError:
            return said
        if isinstance(parsed, dict) and list(parsed) == ["answer"] and isinstance(parsed["answer"], str):
            return str(parsed["answer"]).strip()
    return said


def _likelihoods(choice: Mapping[str, Any], text: str, spec: AnswerSpec) -> np.ndarray:
    """Log-probability of each answer's first token, where the answer begins.

    An answer that is not listed gets what is left: no more than the least likely one that
    is, nor than the probability that the listed ones leave.
    """
    listed = _first_listed(choice)
    found = np.full(len(spec.answers), -np.inf)
    for number, texts in enumerate(spec.answers):
        own = [value for token, value in listed.items() if any(name.startswith(token) for name in texts)]
        found[number] = max(own, default=-np.inf)
    if np.isneginf(found).all():
        raise WrongAnswer(text)
    left = math.log(max(1.0 - sum(map(math.exp, listed.values())), SMALLEST))
    return np.where(np.isneginf(found), min(left, *listed.values()), found)


def _first_listed(choice: Mapping[str, Any]) -> dict[str, float]:
    """Log-probabilities of the tokens that could have begun the answer, less white space; the likeliest of equals."""
    given = choice.get("logprobs")
    try:
        listed = _first_words(_positions(given)) if isinstance(given, dict) else {}
    except (KeyError, TypeError, AttributeError) as error:
        raise Retry("the reply's log-probabilities are malformed") from error
    if not listed:
        raise Refused("the endpoint gives no log-probabilities, which ai_score and probabilities=True need")
    return listed


def _first_words(positions: Sequence[tuple[str, list[tuple[str, Any]]]]) -> dict[str, float]:
    listed: dict[str, float] = {}
    for token, others in positions:
        if token.strip():
            for name, value in others:
                if name.strip() and isinstance(value, int | float):
                    listed[name.strip()] = max(float(value), listed.get(name.strip(), -math.inf))
            break
    return listed


def _positions(given: Mapping[str, Any]) -> list[tuple[str, list[tuple[str, Any]]]]:
    """(token, alternatives with their log-probabilities) of every token, in a chat or as a completion."""
    if isinstance(given.get("content"), list):
        return [
            (entry["token"], [(o["token"], o["logprob"]) for o in (entry, *(entry.get("top_logprobs") or ()))])
            for entry in given["content"]
        ]
    tokens, values, tops = (given.get(name) or [] for name in ("tokens", "token_logprobs", "top_logprobs"))
    return [
        (token, [(token, value), *(top or {}).items()]) for token, value, top in zip(tokens, values, tops, strict=False)
    ]


def _usage(content: Mapping[str, Any]) -> tuple[int, int]:
    """Tokens of the prompt that were computed, and that were found in a cache, as far as the endpoint tells."""
    usage = content.get("usage")
    if not isinstance(usage, dict):
        return 0, 0
    prompt = usage.get("prompt_tokens")
    details = usage.get("prompt_tokens_details")
    cached = details.get("cached_tokens") if isinstance(details, dict) else 0
    total, reused = (value if isinstance(value, int) else 0 for value in (prompt, cached))
    return max(total - reused, 0), reused
