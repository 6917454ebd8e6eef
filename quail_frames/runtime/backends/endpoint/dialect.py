"""What a request says, in the words that this endpoint understands.

Endpoints differ in how they constrain an answer and in small things; one that refuses a
word is asked again without it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from quail_frames.errors import ModelError
from quail_frames.runtime.readouts.answers import AnswerSpec

SYSTEM = "You answer with exactly one of the allowed answers, written as the user writes it, and nothing else."
MORE_TOKENS = 16
"""Tokens of an answer beyond one for each of its bytes: quotes, braces and an end."""
MOST_LISTED = 20
FEWEST_LISTED = 5
"""Alternatives listed for a token: OpenAI lists 20 (chat) or 5 (completions)."""
_WORDS = (
    "response_format",
    "json_schema",
    "structured_outputs",
    "guided",
    "grammar",
    "schema",
    "extra inputs",
    "extra_forbidden",
)


@dataclass(frozen=True)
class Dialect:
    """How to ask.

    structured    how an answer is constrained
    token_limit   the word for the most tokens of an answer; newer OpenAI models want another
    greedy        say temperature 0
    listed        alternatives to ask for, where likelihoods are needed
    """

    model: str
    api: str = "chat"
    structured: str = "json_schema"
    token_limit: str = "max_tokens"
    greedy: bool = True
    listed: int = MOST_LISTED
    extra: Mapping[str, Any] = field(default_factory=dict)

    @property
    def path(self) -> str:
        """Where requests go, below the base address."""
        return "chat/completions" if self.api == "chat" else "completions"

    def body(self, prompt: str, spec: AnswerSpec, wrong: str | None = None) -> bytes:
        """The request, as JSON. `wrong` is an answer given before that is not allowed."""
        content: dict[str, Any] = {"model": self.model, **self._prompt(prompt, spec, wrong)}
        content[self.token_limit] = max(len(text.encode()) for text in spec.allowed) + MORE_TOKENS
        if self.greedy:
            content["temperature"] = 0
        content |= self._constraint(spec)
        if spec.scored:
            chat = {"logprobs": True, "top_logprobs": self.listed}
            content |= chat if self.api == "chat" else {"logprobs": self.listed}
        return json.dumps(content | dict(self.extra), ensure_ascii=False).encode()

    def without(self, message: str, spec: AnswerSpec) -> Dialect | None:
        """The dialect less what this message of the endpoint complains of; None where that is no word of ours.

        Raises
        ------
        ModelError
            What it does not know cannot be done without.
        """
        text = message.lower()
        if spec.scored and "logprobs" in text:
            if self.listed > FEWEST_LISTED:
                return replace(self, listed=FEWEST_LISTED)
            raise ModelError(
                f"The endpoint gives no log-probabilities ({message}), which ai_score and probabilities=True need; ask "
                "with ai_if or ai_classify without probabilities, or use another endpoint."
            )
        if "max_completion_tokens" in text and self.token_limit == "max_tokens":
            return replace(self, token_limit="max_completion_tokens")
        if "temperature" in text and self.greedy:
            return replace(self, greedy=False)
        if self.structured != "none" and any(word in text for word in _WORDS):
            return replace(self, structured="none")
        return None

    def _prompt(self, prompt: str, spec: AnswerSpec, wrong: str | None) -> dict[str, Any]:
        if self.api != "chat":
            return {"prompt": prompt}
        messages = [{"role": "system", "content": SYSTEM}, {"role": "user", "content": prompt}]
        if wrong is not None:
            again = f"That is no allowed answer. Reply with one of these, exactly: {', '.join(spec.allowed)}"
            messages += [{"role": "assistant", "content": wrong}, {"role": "user", "content": again}]
        return {"messages": messages}

    def _constraint(self, spec: AnswerSpec) -> dict[str, Any]:
        allowed = list(spec.allowed)
        if self.structured == "structured_outputs":
            return {"structured_outputs": {"choice": allowed}}
        if self.structured == "guided_choice":
            return {"guided_choice": allowed}
        if self.structured == "grammar":
            return {"grammar": "root ::= " + " | ".join(json.dumps(text, ensure_ascii=False) for text in allowed)}
        if self.structured == "json_schema" and not spec.scored:
            return {"response_format": {"type": "json_schema", "json_schema": _schema(allowed)}}
        return {}


def _schema(allowed: list[str]) -> dict[str, Any]:
    answer = {"type": "string", "enum": allowed}
    schema = {"type": "object", "properties": {"answer": answer}, "required": ["answer"], "additionalProperties": False}
    return {"name": "answer", "strict": True, "schema": schema}
