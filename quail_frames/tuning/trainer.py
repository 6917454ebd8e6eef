"""The training loop: seeded, resumable, one optimiser step for a batch of trees."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from quail_frames.runtime.models.load import LoadedModel
from quail_frames.tuning.examples import Answer, Example, Prompter
from quail_frames.tuning.forward import TrainingDecoder, batch_of
from quail_frames.tuning.head import Reader, is_right, loss_of, new_head
from quail_frames.tuning.lora import LoraShape, new_adapters
from quail_frames.tuning.workers import ALONE, Workers

KIND_WEIGHTS = {"true_false": 1.0, "letters": 1.5, "decision_choice": 2.0}
"""A choice costs several times a yes/no question's tokens, so there are fewer of them."""


@dataclass(frozen=True)
class Recipe:
    """Everything besides the data that decides the result.

    `tokens` is the length of the run; the learning rate warms up over `warmup_steps` and falls with half a cosine.
    """

    tokens: int
    seed: int = 0
    lora: LoraShape = field(default_factory=LoraShape)
    head_width: int = 128
    batch_tokens: int = 1000
    early_tokens: int = 600
    early_steps: int = 120
    rate_a: float = 6e-4
    rate_b: float = 1.2e-3
    rate_head: float = 1e-3
    warmup_steps: int = 8
    last_rate: float = 0.04
    clip: float = 1.0

    def batch(self, step: int) -> int:
        """Tokens of a step's batch: few at first, for it takes steps rather than tokens to leave chance behind."""
        return self.early_tokens if step < self.early_steps else self.batch_tokens

    def factor(self, step: int, tokens: int) -> float:
        """Share of the full learning rate after so many steps and tokens."""
        done = min(tokens / self.tokens, 1.0)
        cosine = self.last_rate + (1 - self.last_rate) * 0.5 * (1 + math.cos(math.pi * done))
        return min((step + 1) / self.warmup_steps, 1.0) * cosine


@dataclass
class Progress:
    """Where a run stands."""

    step: int = 0
    tokens: int = 0
    units: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class StepReport:
    """What one step saw: its loss, and of each kind of answer (right, asked)."""

    progress: Progress
    loss: float
    rate: float
    gradient: float
    right: dict[str, tuple[int, int]] = field(default_factory=dict)


class Trainer:
    """Adapters and head of one model, their optimiser, and the run's progress.

    Examples come by number, so a run that was stopped goes on with the very next one.
    """

    def __init__(
        self,
        model: LoadedModel,
        recipe: Recipe,
        example: Callable[[int], Example],
        start: Mapping[str, Tensor] | None = None,
        workers: Workers = ALONE,
    ) -> None:
        """Start from new factors and a new head, or from those of another adapter; `workers` share every step."""
        self.recipe, self._example, self._workers = recipe, example, workers
        generator = torch.Generator().manual_seed(recipe.seed)
        config = model.decoder.config
        fresh = new_adapters(config, recipe.lora, generator) | new_head(
            config.hidden_size, recipe.head_width, generator
        )
        self.tensors = fresh if start is None else {name: tensor.clone() for name, tensor in start.items()}
        for tensor in self.tensors.values():
            tensor.requires_grad_()
        self.decoder = TrainingDecoder(model.decoder, self.tensors, recipe.lora)
        self.reader = Reader.of(self.tensors, model.decoder.weights.head, Prompter(model.tokenizer))
        self.optimizer = torch.optim.AdamW(self._groups(), betas=(0.9, 0.99), weight_decay=0.0)
        self.progress = Progress()

    def _groups(self) -> list[dict[str, Any]]:
        rates = {".lora_a": self.recipe.rate_a, ".lora_b": self.recipe.rate_b, "decision_head.": self.recipe.rate_head}
        return [
            {"params": [tensor for name, tensor in self.tensors.items() if part in name], "lr": rate, "full": rate}
            for part, rate in rates.items()
        ]

    @property
    def finished(self) -> bool:
        """Whether the planned tokens are used up."""
        return self.progress.tokens >= self.recipe.tokens

    def steps(self) -> Iterator[StepReport]:
        """Train until the planned tokens are used up; a report after each step."""
        while not self.finished:
            yield self.step()

    def step(self) -> StepReport:
        """One optimiser step on the next examples."""
        started = time.perf_counter()
        examples = self._next_batch()
        factor = self.recipe.factor(self.progress.step, self.progress.tokens)
        loss, right = self._gradients(examples)
        gradient = torch.nn.utils.clip_grad_norm_(list(self.tensors.values()), self.recipe.clip)
        for group in self.optimizer.param_groups:
            group["lr"] = group["full"] * factor
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.decoder.refresh()
        self.progress.step += 1
        self.progress.tokens += sum(len(example.tree) for example in examples)
        self.progress.seconds += time.perf_counter() - started
        return StepReport(self.progress, loss, factor, float(gradient), right)

    def _gradients(self, examples: Sequence[Example]) -> tuple[float, dict[str, tuple[int, int]]]:
        """Gradients of the batch's mean loss; returns the loss and the tally of what this process computed of it."""
        weight = sum(map(weight_of, (answer for example in examples for answer in example.answers)))
        mine = [examples[number] for number in self._workers.own([len(example.tree) for example in examples])]
        loss, right = 0.0, dict[str, tuple[int, int]]()
        if mine:
            answers = [answer for example in mine for answer in example.answers]
            logits = self.reader.logits(self.decoder.hidden(batch_of(mine)), answers)
            part = sum_of_losses(logits, answers) / weight
            part.backward()
            own_weight = sum(map(weight_of, answers))
            loss, right = part.item() * weight / own_weight, tally(logits, answers)
        self._workers.add_up(self.tensors.values())
        return loss, right

    def _next_batch(self) -> list[Example]:
        examples: list[Example] = []
        while sum(len(example.tree) for example in examples) < self.recipe.batch(self.progress.step):
            examples.append(self._example(self.progress.units))
            self.progress.units += 1
        return examples

    @torch.inference_mode()
    def answer(self, examples: Sequence[Example]) -> list[Tensor]:
        """Logits of the examples' answers, in order."""
        answers = [answer for example in examples for answer in example.answers]
        return self.reader.logits(self.decoder.hidden(batch_of(examples)), answers)

    def save(self, path: Path) -> None:
        """Write everything that `load` needs, whole or not at all."""
        state = {"tensors": self.tensors, "optimizer": self.optimizer.state_dict(), "progress": vars(self.progress)}
        partial = path.with_suffix(".partial")
        torch.save(state, partial)
        os.replace(partial, path)

    def load(self, path: Path) -> None:
        """Go on from a checkpoint."""
        state = torch.load(path, weights_only=True)
        with torch.no_grad():
            for name, tensor in self.tensors.items():
                tensor.copy_(state["tensors"][name])
        self.optimizer.load_state_dict(state["optimizer"])
        for group, fresh in zip(self.optimizer.param_groups, self._groups(), strict=True):
            group["full"] = fresh["full"]
        self.progress = Progress(**state["progress"])
        self.decoder.refresh()


def weight_of(answer: Answer) -> float:
    """How much an answer counts in the loss."""
    return answer.weight * KIND_WEIGHTS[answer.kind]


def sum_of_losses(logits: Sequence[Tensor], answers: Sequence[Answer]) -> Tensor:
    """Weighted sum of the answers' cross-entropies."""
    losses = [loss_of(values, answer) for values, answer in zip(logits, answers, strict=True)]
    return (torch.stack(losses) * torch.tensor([weight_of(answer) for answer in answers])).sum()


def tally(logits: Sequence[Tensor], answers: Sequence[Answer]) -> dict[str, tuple[int, int]]:
    """Of each kind, and of each group, (right, asked)."""
    counts: dict[str, tuple[int, int]] = {}
    for values, answer in zip(logits, answers, strict=True):
        for name in (answer.kind, answer.group):
            right, asked = counts.get(name, (0, 0))
            counts[name] = (right + is_right(values.detach(), answer), asked + 1)
    return counts
