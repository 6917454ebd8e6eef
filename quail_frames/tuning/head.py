"""The decision head while it is trained, and the loss of every kind of answer."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import binary_cross_entropy_with_logits, cross_entropy, gelu, linear

from quail_frames.tuning.examples import Answer, Prompter

HEAD = "decision_head."


def new_head(hidden: int, width: int, generator: torch.Generator) -> dict[str, Tensor]:
    """Trainable tensors of a decision head by their names in the adapter file."""

    def random(*size: int, spread: float = 0.01) -> Tensor:
        return torch.empty(*size).normal_(0.0, spread, generator=generator)

    return {
        HEAD + "query": random(width, hidden),
        HEAD + "key": random(width, hidden),
        HEAD + "mlp_in": random(width, 2 * hidden),
        HEAD + "mlp_in_bias": torch.zeros(width),
        HEAD + "mlp_out": random(width, spread=0.02),
        HEAD + "mlp_out_bias": torch.zeros(()),
    }


def head_logits(tensors: dict[str, Tensor], final: Tensor, options: Tensor) -> Tensor:
    """Logits of the options (n,), from the final state (hidden,) and the options' states (n, hidden)."""
    query, key = linear(final, tensors[HEAD + "query"]), linear(options, tensors[HEAD + "key"])
    of_final, of_option = tensors[HEAD + "mlp_in"].split(len(final), dim=1)
    inner = linear(final, of_final, tensors[HEAD + "mlp_in_bias"]) + linear(options, of_option)
    return (
        key @ query / math.sqrt(len(query)) + gelu(inner) @ tensors[HEAD + "mlp_out"] + tensors[HEAD + "mlp_out_bias"]
    )


@dataclass(frozen=True, eq=False)
class Reader:
    """Logits of answers from hidden states: the engine's read-outs with gradients."""

    tensors: dict[str, Tensor]
    true_rows: Tensor
    false_rows: Tensor
    letter_rows: Tensor

    @staticmethod
    def of(tensors: dict[str, Tensor], output_head: Tensor, prompter: Prompter) -> Reader:
        """For a model's output head (vocabulary, hidden)."""
        ids, count = prompter.true_false.spec.token_ids, prompter.true_false.true_tokens
        rows = output_head[torch.from_numpy(ids).long()]
        letters = output_head[torch.from_numpy(prompter.letter_ids).long()]
        return Reader(tensors, rows[:count], rows[count:], letters)

    def logits(self, hidden: Tensor, answers: Sequence[Answer]) -> list[Tensor]:
        """Of each answer the log-odds of TRUE (1,), or a logit for each option; `hidden` holds their rows in turn."""
        out, row = [], 0
        for answer in answers:
            states = hidden[row : row + len(answer.rows)]
            row += len(answer.rows)
            if answer.kind == "true_false":
                out.append(linear(states, self.true_rows).logsumexp(1) - linear(states, self.false_rows).logsumexp(1))
            elif answer.kind == "letters":
                out.append(linear(states[0], self.letter_rows[: answer.options]))
            else:
                out.append(head_logits(self.tensors, states[-1], states[:-1]))
        return out


def loss_of(logits: Tensor, answer: Answer) -> Tensor:
    """Cross-entropy of one answer."""
    if answer.kind == "true_false":
        return binary_cross_entropy_with_logits(logits[0], torch.tensor(answer.target))
    return cross_entropy(logits[None], torch.tensor([int(answer.target)]))


def is_right(logits: Tensor, answer: Answer) -> bool:
    """Whether the answer that the engine would give is the right one."""
    if answer.kind == "true_false":
        return bool((logits[0] > 0) == (answer.target > 0.5))
    return int(logits.argmax()) == int(answer.target)
