"""The recipe: seeded data, a loop that learns and resumes, an adapter file that keeps what was learnt."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from quail_frames.errors import ModelError
from quail_frames.runtime.models.load import LoadedModel, load_model
from quail_frames.tuning import workers
from quail_frames.tuning.adapter_file import AdapterFacts, trainable, write_adapter
from quail_frames.tuning.calibration import (
    area_under_curve,
    expected_calibration_error,
    fit_choice,
    fit_true_false,
)
from quail_frames.tuning.examples import Example, Prompter
from quail_frames.tuning.lora import LoraShape
from quail_frames.tuning.trainer import Recipe, Trainer
from training.calls import ask, choose
from training.corpus import Corpus, held_out_intent
from training.units.builder import Builder
from training.units.intents import intent_choice, intent_labels, intent_questions, near_intents
from training.units.mixture import MIXTURE, draw
from training.units.sentiment import sentiment
from training.wordings import Wordings

RECIPE = Recipe(tokens=10_000, lora=LoraShape(rank=2), head_width=8, batch_tokens=300, early_tokens=300, warmup_steps=1)


def colours(prompter: Prompter) -> Callable[[int], Example]:
    """A task that can be learnt at once: the document is its own answer."""

    def example(number: int) -> Example:
        text = ("red", "blue")[number % 2]
        return prompter.example(
            [
                ask("Is it red?", text, float(text == "red"), "colour"),
                choose("", text, ["red", "blue"], number % 2, "colour", scoring="letters"),
                choose("", text, ["blue", "red"], 1 - number % 2, "colour", scoring="decision_choice"),
            ]
        )

    return example


def test_equal_seeds_give_equal_questions(prompter: Prompter, training_sets: Path) -> None:
    first, second = (draw(Builder(Corpus(training_sets)), random.Random("0 5")) for _ in range(2))
    assert first == second
    assert prompter.example(first).tree.tokens().tolist() == prompter.example(second).tree.tokens().tolist()


def test_every_task_of_the_mixture_can_be_built(training_sets: Path) -> None:
    for held_out in (False, True):
        builder = Builder(Corpus(training_sets, held_out), held_out)
        for make, _, _ in MIXTURE:
            for number in range(20):
                unit = make(builder, random.Random(number))
                assert all(item.target >= 0 and item.group for item in unit)


def test_held_out_rows_wordings_and_intents_are_not_trained_on(training_sets: Path) -> None:
    trained, held_out = Corpus(training_sets), Corpus(training_sets, held_out=True)
    texts = [{row.text for row in corpus.rows("nli", "nli")} for corpus in (trained, held_out)]
    assert texts[0] and texts[1] and not texts[0] & texts[1]
    wordings = Wordings(tuple("abcdefghijkl"), ("m",))
    assert wordings.part(True).yes == ("f", "l") and set(wordings.part(False).yes) == set("abcdeghijk")
    assert not any(held_out_intent(label) for label in intent_labels(Builder(trained), "hwu_intent"))


def test_wrong_intents_are_of_the_same_domain_as_far_as_asked(training_sets: Path) -> None:
    builder = Builder(Corpus(training_sets))
    groups = builder.corpus.labelled("intents", "clinc_intent")
    labels = intent_labels(builder, "clinc_intent")
    near = set(labels[1:5])
    for label in labels[5:]:
        groups[label][0].extra["domain"] = "elsewhere"
    for share, expected in ((0.5, 2), (1.0, 4)):
        found = near_intents(builder, random.Random(0), "clinc_intent", labels[0], 4, share)
        assert len(near.intersection(found)) >= expected
        assert len(set(found) - {labels[0]}) == 4


def test_a_choice_among_intents_has_up_to_32_options_and_holds_the_right_one(training_sets: Path) -> None:
    builder = Builder(Corpus(training_sets))
    sizes = set()
    for number in range(300):
        item = intent_choice(builder, random.Random(number))[0]
        labels = item.planned.call.labels
        sizes.add(len(labels))
        assert len(set(labels)) == len(labels) and 0 <= item.target < len(labels)
    assert max(sizes) >= 32 and min(sizes) <= 3


def test_a_wording_has_no_favourite_answer(training_sets: Path) -> None:
    builder = Builder(Corpus(training_sets))
    for make in (sentiment, intent_questions):
        targets = [
            item.target
            for number in range(300)
            for item in make(builder, random.Random(number))
            if item.planned.scoring == "true_false"
        ]
        assert 0.4 < sum(targets) / len(targets) < 0.6


def test_training_lowers_the_loss_of_every_kind(tiny_model: LoadedModel, prompter: Prompter) -> None:
    trainer = Trainer(tiny_model, RECIPE, colours(prompter))
    losses = [trainer.step().loss for _ in range(25)]
    assert losses[-1] < 0.5 * losses[0]
    report = trainer.step()
    assert all(right == asked for name, (right, asked) in report.right.items() if name != "colour")


def test_a_resumed_run_is_the_run_that_was_not_stopped(
    tiny_model: LoadedModel, prompter: Prompter, tmp_path: Path
) -> None:
    whole = Trainer(tiny_model, RECIPE, colours(prompter))
    for _ in range(4):
        whole.step()
    stopped = Trainer(tiny_model, RECIPE, colours(prompter))
    stopped.step(), stopped.step()
    stopped.save(tmp_path / "checkpoint.pt")
    resumed = Trainer(tiny_model, RECIPE, colours(prompter))
    resumed.load(tmp_path / "checkpoint.pt")
    resumed.step(), resumed.step()
    assert resumed.progress.units == whole.progress.units and resumed.progress.tokens == whole.progress.tokens
    for name, tensor in whole.tensors.items():
        torch.testing.assert_close(resumed.tensors[name], tensor, rtol=0, atol=0)


def train_and_answer(own: workers.Workers, folder: Path, out: Path) -> None:
    """A few steps of this process's share; the first process writes what the model answers then."""
    model = load_model(folder, dtype="float32")
    example = colours(Prompter(model.tokenizer))
    trainer = Trainer(model, RECIPE, example, workers=own)
    for _ in range(4):
        trainer.step()
    if own.rank == 0:
        torch.save((trainer.progress.units, trainer.answer([example(0), example(1)])), out)


def test_processes_that_share_the_steps_learn_what_one_alone_learns(tiny_folder: Path, tmp_path: Path) -> None:
    answers = []
    for count in (1, 2):
        workers.run(count, train_and_answer, tiny_folder, tmp_path / f"{count}.pt")
        answers.append(torch.load(tmp_path / f"{count}.pt", weights_only=True))
    (units, alone), (units_of_both, together) = answers
    assert units_of_both == units > 0
    for first, second in zip(alone, together, strict=True):
        torch.testing.assert_close(second, first, rtol=1e-3, atol=1e-3)


def test_an_adapter_file_keeps_factors_and_facts(tiny_model: LoadedModel, prompter: Prompter, tmp_path: Path) -> None:
    trainer = Trainer(tiny_model, RECIPE, colours(prompter))
    trainer.step()
    facts = AdapterFacts("tiny", rank=2, alpha=32.0, temperature=1.5, bias=-0.25, recipe_seed=3, recipe_tokens=77)
    write_adapter(tmp_path / "a.safetensors", trainer.tensors, facts)
    tensors, read = trainable(tmp_path / "a.safetensors")
    assert read == facts
    assert tensors.keys() == trainer.tensors.keys()
    for name, tensor in tensors.items():
        original = trainer.tensors[name].detach()
        step = original.abs().max() / 150
        assert (tensor - original).abs().max() <= step + 1e-12


def test_a_file_of_another_kind_is_refused(tmp_path: Path) -> None:
    from safetensors.torch import save_file

    save_file({"x": torch.zeros(2)}, tmp_path / "other.safetensors")
    with pytest.raises(ModelError, match="no adapter"):
        trainable(tmp_path / "other.safetensors")


def test_calibration_finds_the_temperature_and_bias_that_blurred_the_answers() -> None:
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(20_000, generator=generator) * 2
    truth = (torch.rand(20_000, generator=generator) < torch.sigmoid(logits / 2 + 0.5)).float()
    found = fit_true_false(logits, truth)
    assert found.temperature == pytest.approx(2.0, rel=0.06) and found.bias == pytest.approx(0.5, abs=0.06)
    scores = torch.sigmoid(logits / found.temperature + found.bias)
    assert expected_calibration_error(scores, truth) < 0.02
    assert area_under_curve(scores[:2000], truth[:2000]) == area_under_curve(logits[:2000], truth[:2000])
    options = torch.randn(3000, 3, generator=generator)
    chosen = torch.multinomial(torch.softmax(options / 0.5, dim=1), 1, generator=generator)[:, 0]
    assert fit_choice(list(options), chosen.tolist()).temperature == pytest.approx(0.5, rel=0.1)
