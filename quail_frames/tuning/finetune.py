"""`qf.finetune`: a few minutes of training on a user's own answers give an adapter that answers like them."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import polars as pl
import torch
from torch import Tensor

from quail_frames.errors import CallError
from quail_frames.plan.calls import AiCall
from quail_frames.plan.physical import PlannedCall
from quail_frames.runtime.compiled import DecisionFormat, ModelTraits
from quail_frames.runtime.models.adapter_file import adapter_path
from quail_frames.runtime.models.load import LoadedModel, load_model
from quail_frames.runtime.options import DEFAULT_MODEL
from quail_frames.runtime.resolve import resolve_call
from quail_frames.runtime.torch_model import shape_of
from quail_frames.tuning.adapter_file import AdapterFacts, trainable, write_adapter
from quail_frames.tuning.calibration import fit_choice, fit_true_false
from quail_frames.tuning.examples import Example, Item, Prompter
from quail_frames.tuning.head import is_right
from quail_frames.tuning.labelled import LabelledRow, labelled_rows
from quail_frames.tuning.lora import LoraShape
from quail_frames.tuning.trainer import Recipe, Trainer

LONGEST = 2048
"""Longest prompt that is trained on, in tokens; the memory of a training step grows with its square."""
ROWS_A_TREE = 6
"""Rows that share a question which stands before its documents."""
LEAST_ROWS = 20
LEAST_CALIBRATION = 30
TRAINED = ("true_false", "letters", "decision_choice")


@dataclass(frozen=True)
class Finetuned:
    """What a fine-tuning gave.

    Attributes
    ----------
    path
        The adapter file; use it as `model=path`.
    before, after
        Share of right answers on the held-out rows, by the base and by the adapter.
    trained, held_out, left_out
        Rows that were trained on, that the shares are measured on, and that were too long to train on.
    seconds
        How long it took.
    """

    path: Path
    before: float
    after: float
    trained: int
    held_out: int
    left_out: int
    seconds: float

    def __str__(self) -> str:
        skipped = f", {self.left_out} rows over {LONGEST} tokens left out" if self.left_out else ""
        return (
            f"{self.after:.1%} right on {self.held_out} held-out rows ({self.before:.1%} before), after {self.trained} "
            f"rows in {self.seconds:.0f} s{skipped}; model={str(self.path)!r}"
        )


def finetune(
    frame: pl.DataFrame | pl.LazyFrame,
    question: str | pl.Expr,
    *,
    truth: str,
    out: str | os.PathLike[str],
    base: str | os.PathLike[str] = DEFAULT_MODEL,
    epochs: float = 3.0,
    held_out: float = 0.2,
    seed: int = 0,
) -> Finetuned:
    """Train an adapter on rows whose answers are known, and print how it does on those held out.

    Parameters
    ----------
    frame
        Rows with the columns of the question and the column `truth`; rows with a null are left out.
    question
        A prompt (as for `ai_if`), or one AI expression: `qf.ai_if(...)`, `qf.ai_score(...)`, `qf.ai_classify(...)`.
    truth
        The column of right answers: Boolean for a question, one of the labels for a classification.
    out
        The adapter file to write, ending in `.safetensors`; a few MB.
    base
        The model to start from: an adapter (packaged, or a file of an earlier call) or a plain model.
    epochs
        How often each row is trained on.
    held_out
        Share of the rows that are not trained on: half of them fit the calibration, half are scored.
    seed
        Equal seeds give equal adapters on one machine.

    Returns
    -------
    Finetuned
        The file and its score. Load it with `qf.configure(model=...)` or `qf.Engine(...)`.

    Raises
    ------
    CallError, ColumnError
        The question or the column of answers does not fit, or there are too few rows.
    ModelError
        The base cannot be loaded.

    Examples
    --------
    >>> import quail_frames as qf
    >>> tuned = qf.finetune(                                        # doctest: +SKIP
    ...     tickets, "Is it urgent?\\n\\n{body}", truth="is_urgent", out="urgent.safetensors")
    >>> qf.configure(model=tuned.path)                              # doctest: +SKIP
    """
    started = time.perf_counter()
    call, rows = labelled_rows(frame, question, truth)
    model, start, facts = _open(base)
    planned = _plan(call, model, facts)
    task = Task.of(planned, rows, Prompter(model.tokenizer), held_out)
    example = task.examples(seed)
    trainer = Trainer(model, _recipe(task, epochs, seed, facts.lora, fresh=start is None), example, start)
    before = _share_right(trainer, task.scored, facts)
    for _ in trainer.steps():
        pass
    facts = _calibrated(trainer, task.calibration, facts)
    write_adapter(Path(out), trainer.tensors, replace(facts, recipe_seed=seed, recipe_tokens=trainer.progress.tokens))
    after = _share_right(trainer, task.scored, facts)
    seconds = time.perf_counter() - started
    result = Finetuned(Path(out), before, after, len(task.trained), len(task.scored), task.left_out, seconds)
    print(result)
    return result


@dataclass(frozen=True, eq=False)
class Task:
    """A planned call's rows as items, split by their texts."""

    prompter: Prompter
    trained: tuple[Item, ...]
    calibration: tuple[Example, ...]
    scored: tuple[Example, ...]
    left_out: int

    @staticmethod
    def of(planned: PlannedCall, rows: Sequence[LabelledRow], prompter: Prompter, held_out: float) -> Task:
        """The rows, those with equal texts on one side."""
        if not 0 < held_out < 1:
            raise CallError(f"held_out is a share of the rows, between 0 and 1, not {held_out!r}")
        parts: tuple[list[Item], list[Item], list[Item]] = ([], [], [])
        left_out = 0
        for row in rows:
            item = Item(planned, row.texts, row.target)
            if len(prompter.example([item]).tree) > LONGEST:
                left_out += 1
                continue
            parts[(row.share < held_out) + (row.share < held_out / 2)].append(item)
        trained, calibration, scored = parts
        if len(trained) < LEAST_ROWS or not scored:
            raise CallError(
                f"{len(trained)} rows to train on and {len(scored)} to score are too few: give at least {LEAST_ROWS} "
                "different texts to train on, better some hundreds"
            )
        fitted, tested = (tuple(prompter.example([item]) for item in part) for part in (calibration, scored))
        return Task(prompter, tuple(trained), fitted, tested, left_out)

    @property
    def rows_a_tree(self) -> int:
        """Rows of one example; several where they share the question before them."""
        return ROWS_A_TREE if self.trained[0].planned.layout == "question_first" else 1

    def examples(self, seed: int) -> _Shuffled:
        """Training examples by number, every epoch in another order."""
        return _Shuffled(self, seed)

    def tokens(self) -> int:
        """Tokens of one epoch, from up to 64 examples."""
        example = self.examples(0)
        count = -(-len(self.trained) // self.rows_a_tree)
        looked_at = min(count, 64)
        return round(sum(len(example(number).tree) for number in range(looked_at)) / looked_at * count)


@dataclass(frozen=True, eq=False)
class _Shuffled:
    task: Task
    seed: int

    def __call__(self, number: int) -> Example:
        items, size = self.task.trained, self.task.rows_a_tree
        epoch, place = divmod(number, -(-len(items) // size))
        order = random.Random(f"{self.seed} {epoch}").sample(range(len(items)), len(items))
        return self.task.prompter.example([items[index] for index in order[place * size : (place + 1) * size]])


def _open(base: str | os.PathLike[str]) -> tuple[LoadedModel, dict[str, Tensor] | None, AdapterFacts]:
    path = adapter_path(base)
    if path is None:
        facts = AdapterFacts(os.fspath(base), rank=16, alpha=32.0)
        return load_model(base, dtype="float32"), None, facts
    tensors, facts = trainable(path)
    return load_model(facts.base, dtype="float32"), tensors, facts


def _plan(call: AiCall, model: LoadedModel, facts: AdapterFacts) -> PlannedCall:
    scoring = facts.label_scoring if facts.label_scoring in TRAINED else "decision_choice"
    traits = ModelTraits(decision=DecisionFormat(), default_label_scoring=scoring)  # type: ignore[arg-type]
    inputs = tuple(range(len(call.columns)))
    planned = resolve_call(
        call, inputs, (), model.tokenizer, traits, shape_of(model.name, model.decoder.config, model.decoder.dtype)
    )
    if planned.scoring not in TRAINED:
        raise CallError(f"finetune trains scoring='decision_choice' or 'letters', not {planned.scoring!r}")
    return planned


def _recipe(task: Task, epochs: float, seed: int, lora: LoraShape, *, fresh: bool) -> Recipe:
    """Gentle steps for an adapter that already decides, larger ones from nothing."""
    factor = 1.0 if fresh else 0.4
    tokens = max(1, round(task.tokens() * epochs))
    batch = max(200, min(800, tokens // 20))
    return Recipe(
        tokens=tokens,
        seed=seed,
        lora=lora,
        batch_tokens=batch,
        early_tokens=batch,
        rate_a=6e-4 * factor,
        rate_b=1.2e-3 * factor,
        rate_head=1e-3 * factor,
        warmup_steps=5,
    )


def _answers(trainer: Trainer, examples: Sequence[Example]) -> list[Tensor]:
    return [logits for example in examples for logits in trainer.answer([example])]


def _share_right(trainer: Trainer, examples: Sequence[Example], facts: AdapterFacts) -> float:
    right = 0
    for logits, example in zip(_answers(trainer, examples), examples, strict=True):
        answer = example.answers[0]
        shifted = logits / facts.temperature + facts.bias if answer.kind == "true_false" else logits
        right += is_right(shifted, answer)
    return right / len(examples)


def _calibrated(trainer: Trainer, examples: Sequence[Example], facts: AdapterFacts) -> AdapterFacts:
    """The facts with this task's calibration; unchanged where too few rows were held out for it."""
    if len(examples) < LEAST_CALIBRATION:
        return facts
    answers = [example.answers[0] for example in examples]
    logits, kind = _answers(trainer, examples), answers[0].kind
    if kind == "true_false":
        fitted = fit_true_false(torch.cat(logits), torch.tensor([answer.target for answer in answers]))
        return replace(facts, temperature=fitted.temperature, bias=fitted.bias)
    temperature = fit_choice(logits, [int(answer.target) for answer in answers]).temperature
    name = "letters_temperature" if kind == "letters" else "choice_temperature"
    return replace(facts, **{name: temperature})  # type: ignore[arg-type]
