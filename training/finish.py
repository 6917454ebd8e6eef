"""`python -m training.finish`: calibrates a checkpoint on held-out rows and wordings, and writes the adapter file."""

from __future__ import annotations

import argparse
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import torch
from torch import Tensor

from quail_frames.runtime.models.load import LoadedModel, load_model
from quail_frames.tuning.adapter_file import AdapterFacts, trainable, write_adapter
from quail_frames.tuning.calibration import area_under_curve, expected_calibration_error, fit_choice, fit_true_false
from quail_frames.tuning.examples import Answer, Example, Prompter
from quail_frames.tuning.forward import TrainingDecoder, batch_of
from quail_frames.tuning.head import Reader, is_right
from training.corpus import FOLDER, Corpus
from training.train import BASE
from training.units.builder import HARD_INTENTS, Builder
from training.units.mixture import draw

ADAPTER = Path("quail_frames/runtime/models/adapters/smollm2-135m-decide.safetensors")
CALIBRATION_SEED = "calibration"


@dataclass
class Answered:
    """Held-out answers with their logits."""

    answers: list[Answer] = field(default_factory=list)
    logits: list[Tensor] = field(default_factory=list)

    def of(self, kind: str) -> tuple[list[Tensor], list[float]]:
        """Logits and targets of one kind."""
        chosen = [number for number, answer in enumerate(self.answers) if answer.kind == kind]
        return [self.logits[number] for number in chosen], [self.answers[number].target for number in chosen]


def main() -> None:
    arguments = parse()
    torch.set_num_threads(arguments.threads)
    model = load_model(BASE, dtype="float32")
    state = torch.load(arguments.checkpoint, weights_only=True)
    facts = AdapterFacts(
        BASE, rank=16, alpha=32.0, recipe_seed=arguments.seed, recipe_tokens=state["progress"]["tokens"]
    )
    write_adapter(arguments.out, state["tensors"], facts)
    answered = answer_held_out(model, arguments.out, arguments.data, arguments.units)
    facts = calibrated(facts, answered)
    write_adapter(arguments.out, state["tensors"], facts)
    print(json.dumps(report(answered, facts), indent=1))
    print(facts, arguments.out.stat().st_size, "bytes")


def answer_held_out(model: LoadedModel, adapter: Path, data: Path, units: int) -> Answered:
    """Answers of the adapter, as it is stored, to units that training never saw."""
    tensors, facts = trainable(adapter)
    prompter = Prompter(model.tokenizer)
    decoder, answered = TrainingDecoder(model.decoder, tensors, facts.lora), Answered()
    reader = Reader.of(tensors, model.decoder.weights.head, prompter)
    asked = HARD_INTENTS  # what the model is for, in its shares, rather than the last lesson's
    builder = Builder(Corpus(data, held_out=True), held_out=True, unit=asked)
    for batch in batches(builder, prompter, units):
        answers = [answer for example in batch for answer in example.answers]
        with torch.inference_mode():
            answered.logits += reader.logits(decoder.hidden(batch_of(batch)), answers)
        answered.answers += answers
    return answered


def batches(builder: Builder, prompter: Prompter, units: int, size: int = 8) -> Iterator[list[Example]]:
    """Held-out examples, some at a time."""
    for start in range(0, units, size):
        yield [
            prompter.example(draw(builder, random.Random(f"{CALIBRATION_SEED} {number}")))
            for number in range(start, min(start + size, units))
        ]


def calibrated(facts: AdapterFacts, answered: Answered) -> AdapterFacts:
    """The facts with temperatures and bias fitted on held-out answers."""
    margins, truth = answered.of("true_false")
    questions = fit_true_false(torch.cat(margins), torch.tensor(truth))
    choices, targets = answered.of("decision_choice")
    letters, letter_targets = answered.of("letters")
    return replace(
        facts,
        temperature=questions.temperature,
        bias=questions.bias,
        choice_temperature=fit_choice(choices, [int(target) for target in targets]).temperature,
        letters_temperature=fit_choice(letters, [int(target) for target in letter_targets]).temperature,
    )


def report(answered: Answered, facts: AdapterFacts) -> dict[str, object]:
    """Accuracy by kind and group, and for TRUE/FALSE the area under the curve and the calibration error."""
    groups: dict[str, list[bool]] = {}
    for answer, logits in zip(answered.answers, answered.logits, strict=True):
        shifted = logits / facts.temperature + facts.bias if answer.kind == "true_false" else logits
        for name in (answer.kind, answer.group):
            groups.setdefault(name, []).append(is_right(shifted, answer))
    margins, truth = answered.of("true_false")
    scores = torch.sigmoid(torch.cat(margins) / facts.temperature + facts.bias)
    return {
        "accuracy": {name: [round(sum(right) / len(right), 3), len(right)] for name, right in sorted(groups.items())},
        "area under curve": round(area_under_curve(scores, torch.tensor(truth)), 3),
        "calibration error": round(expected_calibration_error(scores, torch.tensor(truth)), 3),
    }


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--checkpoint", type=Path, default=Path("training/out/checkpoint.pt"))
    parser.add_argument("--data", type=Path, default=FOLDER, help="folder of the training sets")
    parser.add_argument("--out", type=Path, default=ADAPTER, help="the adapter file")
    parser.add_argument("--units", type=int, default=400, help="held-out units to calibrate on")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=2)
    return parser.parse_args()


if __name__ == "__main__":
    main()
