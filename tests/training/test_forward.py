"""A branch of a packed tree is answered exactly as its whole prompt would be."""

from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import pytest
import torch

from quail_frames.plan.calls import AiClassify
from quail_frames.runtime.compiled import DecisionFormat, ModelTraits, compile_call
from quail_frames.runtime.models.attention import causal_attention
from quail_frames.runtime.models.load import LoadedModel
from quail_frames.runtime.tokens.layouts import CUE, Input, option_lines
from quail_frames.runtime.tokens.ragged import Int32
from quail_frames.tuning.examples import Item, Prompter
from quail_frames.tuning.forward import GatedSilu, RmsNorm, TrainingDecoder, batch_of
from quail_frames.tuning.lora import LoraShape, MergedLinear, new_adapters
from training.calls import ask, ask_pair, choose, choose_pair
from training.corpus import Corpus
from training.units.builder import Builder
from training.units.mixture import draw

LABELS = ("good", "rather bad", "neither of the two")
TRAITS = ModelTraits(decision=DecisionFormat())


def engine_tokens(model: LoadedModel, item: Item) -> Int32:
    """The prompt as the engine assembles it, without what a read-out feeds."""
    prompt = compile_call(item.planned, model.tokenizer, TRAITS).prompt
    pieces = (*prompt.document, *prompt.instruction, *prompt.question)
    values = [model.tokenizer.encode([text]).values for text in item.values]
    return np.concatenate([values[piece.column] if isinstance(piece, Input) else piece for piece in pieces])


def seen_tokens(tree_tokens: Int32, visible: np.ndarray, row: int) -> list[int]:
    """Tokens that a row of a tree sees, in order: its whole prompt up to itself."""
    return tree_tokens[visible[row]].tolist()


def items() -> list[Item]:
    text = "The soup was cold, the waiter was warm."
    return [
        ask("Is it about food?", text, 1.0, "a"),
        ask("Is it about {the weather}?", text, 0.0, "b"),
        choose("How was it?", text, LABELS, 1, "c", scoring="letters"),
        choose("How was it?", text, LABELS, 1, "d", scoring="decision_choice"),
        choose("", text, LABELS, 1, "e", scoring="letters", layout="question_first"),
        ask("Is it about food?", "Rain again.", 0.0, "f", layout="question_first"),
        ask_pair("Does {0} mention {1}?", (text, "soup"), 0, 1.0, "g"),
        ask_pair("Does {0} mention {1}?", (text, "soup"), 1, 1.0, "h"),
        choose_pair("Compare {0} with {1}.", (text, "soup"), 0, LABELS, 2, "i", "decision_choice"),
        choose_pair("Compare {0} with {1}.", (text, "soup"), 1, LABELS, 2, "j", "letters"),
    ]


def test_every_branch_sees_the_prompt_that_the_engine_would_send(tiny_model: LoadedModel, prompter: Prompter) -> None:
    example = prompter.example(items())
    tokens, visible = example.tree.tokens(), example.tree.visible()
    for item, answer in zip(items(), example.answers, strict=True):
        expected = engine_tokens(tiny_model, item).tolist()
        if answer.kind != "decision_choice":
            assert seen_tokens(tokens, visible, answer.rows[0]) == expected
            continue
        assert isinstance(item.planned.call, AiClassify)
        blocks = [prompter.encode(line).tolist() for line in option_lines(item.planned.call)]
        for row, block in zip(answer.rows[:-1], blocks, strict=True):
            assert seen_tokens(tokens, visible, row) == expected + block
        everything = expected + [token for block in blocks for token in block] + prompter.encode(CUE).tolist()
        assert seen_tokens(tokens, visible, answer.rows[-1]) == everything


def test_options_stand_at_equal_places_and_the_cue_behind_the_longest(prompter: Prompter) -> None:
    tree = prompter.example(items()[3:4]).tree
    blocks = [len(prompter.encode(f"\n- {label}")) for label in LABELS]
    starts = [segment.start for segment in tree.segments[-4:]]
    assert starts == [starts[0]] * 3 + [starts[0] + max(blocks)]


def test_the_made_up_recipe_gives_the_engines_prompts(
    tiny_model: LoadedModel, prompter: Prompter, training_sets: Path
) -> None:
    builder = Builder(Corpus(training_sets))
    for number in range(80):
        unit = draw(builder, random.Random(number))
        example = prompter.example(unit)
        tokens, visible = example.tree.tokens(), example.tree.visible()
        for item, answer in zip(unit, example.answers, strict=True):
            seen = seen_tokens(tokens, visible, answer.rows[0])
            expected = engine_tokens(tiny_model, item).tolist()
            assert seen[: len(expected)] == expected


def test_a_packed_tree_gives_the_states_of_separate_prompts(tiny_model: LoadedModel, prompter: Prompter) -> None:
    examples = [prompter.example(items()), prompter.example(items()[:2])]
    tensors = new_adapters(tiny_model.decoder.config, LoraShape(rank=2), torch.Generator().manual_seed(0))
    states = TrainingDecoder(tiny_model.decoder, tensors, LoraShape(rank=2)).hidden(batch_of(examples))
    rows = [(example, row) for example in examples for answer in example.answers for row in answer.rows]
    for state, (example, row) in zip(states, rows, strict=True):
        visible = example.tree.visible()[row]
        if (np.bincount(example.tree.positions()[visible]) > 1).any():
            continue  # a cue behind options side by side: no single prompt
        tokens = torch.from_numpy(example.tree.tokens()[visible]).long()
        alone = tiny_model.decoder.hidden(
            tokens, torch.arange(len(tokens)), causal_attention(), torch.tensor([len(tokens) - 1])
        )
        torch.testing.assert_close(state, alone[0], atol=1e-4, rtol=1e-4)


def test_gradients_are_those_of_plain_arithmetic() -> None:
    generator = torch.Generator().manual_seed(1)

    def random_tensor(*size: int) -> torch.Tensor:
        return torch.randn(*size, dtype=torch.float64, generator=generator).requires_grad_()

    weight = torch.rand(6, dtype=torch.float64, generator=generator)
    assert torch.autograd.gradcheck(lambda x: RmsNorm.apply(x, weight, 1e-5), (random_tensor(5, 6),))
    assert torch.autograd.gradcheck(GatedSilu.apply, (random_tensor(5, 8),))


@pytest.mark.parametrize("parts", [1, 2])
def test_a_merged_projection_passes_its_gradient_to_the_factors(parts: int) -> None:
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(7, 6, generator=generator, requires_grad=True)
    base = torch.randn(4 * parts, 6, generator=generator)
    a = [torch.randn(3, 6, generator=generator, requires_grad=True) for _ in range(parts)]
    b = [torch.randn(4, 3, generator=generator, requires_grad=True) for _ in range(parts)]
    change = torch.cat([0.5 * (right @ left) for left, right in zip(a, b, strict=True)])
    weights = torch.randn(7, 4 * parts, generator=generator)
    expected = torch.autograd.grad((x @ (base + change).t() * weights).sum(), [x, *a, *b])
    merged = (base + change).detach()
    found = torch.autograd.grad((MergedLinear.apply(x, merged, 0.5, parts, *a, *b) * weights).sum(), [x, *a, *b])
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, atol=1e-4, rtol=1e-4)
