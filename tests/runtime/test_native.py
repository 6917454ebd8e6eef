"""The C kernels of CPUs with AMX give what the eager forms and the definition of attention give."""

from __future__ import annotations

import ctypes
import shutil
from dataclasses import fields, replace
from functools import partial
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quail_frames.runtime.lanes import Alone, Lanes
from quail_frames.runtime.models import layers
from quail_frames.runtime.models.layers import EAGER
from quail_frames.runtime.models.products import by_amx, by_torch, packed
from quail_frames.runtime.models.rope import rotate, rotation
from quail_frames.runtime.models.step import Steps, StepShape
from quail_frames.runtime.models.weights import LayerWeights
from quail_frames.runtime.native import library
from quail_frames.runtime.native.attention import NativeAttention
from quail_frames.runtime.native.elementwise import Compiled
from quail_frames.runtime.native.steps import FusedSteps, steps
from quail_frames.runtime.options import Library
from tests.support.attention_cases import LAYER, Ask, Case, Tree, World, cases

FOUND = library.kernels()
LANES = Lanes(2)
compiled = pytest.mark.skipif(isinstance(FOUND, str), reason=f"no C kernels here: {FOUND}")


def kernels() -> ctypes.CDLL:
    assert not isinstance(FOUND, str)
    return FOUND


def attended(world: World, lanes: Lanes | Alone, sharper: float = 1.0) -> None:
    """Compare every row with the definition; shares and results are bfloat16, so eight bits agree.

    Queries and later keys are `sharper` times as long: each key may then be the greatest so far.
    """
    rows, case = len(world.batch), world.case
    q, kv = world.draw(rows, case.kv_heads * case.group), world.draw(2, rows, case.kv_heads)
    longer = np.linspace(1, sharper, rows)[:, None, None]
    q, kv[0] = as_bfloat16(sharper * q), as_bfloat16(longer * kv[0])
    qkv = torch.from_numpy(np.concatenate([q, *kv], axis=1)).to(torch.bfloat16)
    parts = qkv.split([q.shape[1], case.kv_heads, case.kv_heads], dim=1)
    got = NativeAttention(kernels(), world.batch, world.arena, lanes)(LAYER, *parts).double().numpy()
    for own, expected in world.expected(q, kv):
        np.testing.assert_allclose(got[own], expected, atol=0.02, rtol=0.01)


def as_bfloat16(x: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """The nearest numbers that bfloat16 holds."""
    return torch.from_numpy(x).to(torch.bfloat16).double().numpy()


@compiled
@settings(max_examples=150, deadline=None)
@given(case=cases(), head_dim=st.sampled_from([32, 64, 96, 128]), lanes=st.booleans())
def test_every_token_attends_to_what_it_sees(case: Case, head_dim: int, lanes: bool) -> None:
    attended(World(case, head_dim, torch.bfloat16), LANES if lanes else Alone())


@compiled
@pytest.mark.parametrize("tokens", [511, 512, 513, 700])
def test_long_prompts_go_through_several_stretches(tokens: int) -> None:
    alone, tree = Ask(-1, 0, tokens, 0), Tree((), 0)
    reading = [Ask(0, 600, length, 0) for length in (1, 12, 40, tokens)]
    attended(World(Case([600], [([alone, *reading], tree)], kv_heads=2, group=3, seed=0), 64, torch.bfloat16), Alone())


@compiled
@pytest.mark.parametrize("tokens", [40, 300, 700])
@pytest.mark.parametrize("head_dim", [64, 96])
def test_scores_that_grow_without_end_are_weighed(tokens: int, head_dim: int) -> None:
    """Shares of later keys are 2^100 times those of the first: shifts are raised, with and without values waiting."""
    asks = [Ask(-1, 0, tokens, 0), Ask(0, 70, tokens, 0)]
    attended(
        World(Case([70], [(asks, Tree((), 0))], kv_heads=1, group=3, seed=2), head_dim, torch.bfloat16), Alone(), 6.0
    )


@compiled
def test_what_an_ask_does_not_see_weighs_nothing_at_all() -> None:
    """Two asks of one prefix: the second's keys and values become huge, the first's answers stay what they were."""
    world = World(
        Case([20], [([Ask(0, 20, 5, 0), Ask(0, 20, 5, 0)], Tree((), 0))], kv_heads=1, group=1, seed=1),
        32,
        torch.bfloat16,
    )
    qkv = torch.randn(10, 3, 32, dtype=torch.bfloat16)
    first = NativeAttention(kernels(), world.batch, world.arena, Alone())(LAYER, *qkv.split(1, dim=1))[:5].clone()
    qkv[5:, 1:] = 3e38
    again = NativeAttention(kernels(), world.batch, world.arena, Alone())(LAYER, *qkv.split(1, dim=1))[:5]
    assert torch.equal(first, again)


@compiled
@settings(max_examples=40, deadline=None)
@given(
    rows=st.integers(1, 70),
    inputs=st.sampled_from([32, 64, 576, 608, 1536]),
    outputs=st.sampled_from([32, 96, 160]),
    bias=st.booleans(),
)
def test_products_in_tiles_are_those_of_the_definition(rows: int, inputs: int, outputs: int, bias: bool) -> None:
    drawn = torch.Generator().manual_seed(rows)
    x, weight, shift = (
        torch.randn(*size, generator=drawn).bfloat16() for size in ((rows, inputs), (outputs, inputs), (outputs,))
    )
    expected = x.double() @ weight.double().t() + (shift.double() if bias else 0)
    out = torch.empty(rows, outputs, dtype=torch.bfloat16)
    for place in (None, out):
        got = by_amx(x, packed(weight, "amx"), shift if bias else None, place)
        torch.testing.assert_close(got.double(), expected, rtol=2**-8, atol=1e-3)
    assert got.data_ptr() == out.data_ptr()


@compiled
def test_weights_that_fill_no_whole_tiles_stay_as_they_are() -> None:
    x, weight = torch.randn(5, 40).bfloat16(), torch.randn(33, 40).bfloat16()
    assert packed(weight, "amx") is weight
    assert torch.equal(by_amx(x, packed(weight, "amx")), x @ weight.t())


def random_layer(shape: StepShape, library: Library, bias: bool, seed: int) -> LayerWeights[torch.Tensor]:
    """A layer of 64 inputs and 96 inner outputs, as the library multiplies with it."""
    drawn, hidden, inner = torch.Generator().manual_seed(seed), 64, 96
    queries = shape.heads * shape.head_dim
    total = queries + 2 * shape.kv_heads * shape.head_dim

    def matrix(outputs: int, inputs: int) -> torch.Tensor:
        return packed((torch.randn(outputs, inputs, generator=drawn) / inputs**0.5).bfloat16(), library)

    def vector(size: int) -> torch.Tensor:
        return torch.rand(size, generator=drawn).add(0.5).bfloat16()

    return LayerWeights(
        attention_norm=vector(hidden),
        qkv=matrix(total, hidden),
        qkv_bias=vector(total) if bias else None,
        qk_norm=None if bias else vector(shape.head_dim).expand(shape.heads + shape.kv_heads, -1),
        output=matrix(hidden, queries),
        output_bias=vector(hidden) if bias else None,
        attended_norm=None,
        mlp_norm=vector(hidden),
        gate_up=matrix(2 * inner, hidden),
        gate_up_bias=vector(2 * inner) if bias else None,
        down=matrix(hidden, inner),
        down_bias=vector(hidden) if bias else None,
        down_norm=None,
    )


def exact(layer: LayerWeights[torch.Tensor]) -> LayerWeights[torch.Tensor]:
    """The same weights in float32."""
    weights = {field.name: getattr(layer, field.name) for field in fields(layer)}
    return replace(layer, **{name: weight.float() for name, weight in weights.items() if weight is not None})


def stepped(
    chosen: Steps, layers: list[LayerWeights[torch.Tensor]], rows: int, dtype: torch.dtype = torch.bfloat16
) -> list[torch.Tensor]:
    """What the first, the middle and the last step of a decoder give."""
    drawn, shape = torch.Generator().manual_seed(rows), chosen.shape
    residual = torch.randn(rows, 64, generator=drawn).bfloat16().to(dtype)
    attended = torch.randn(rows, shape.heads * shape.head_dim, generator=drawn).bfloat16().to(dtype)
    cos, sin = rotation(torch.arange(rows), torch.rand(shape.head_dim // 2, generator=drawn))
    first = torch.empty(rows, shape.heads + 2 * shape.kv_heads, shape.head_dim, dtype=dtype)
    between = torch.empty_like(first)
    chosen.first(layers[0], residual, cos, sin, first)
    chosen.between(layers[0], layers[1], attended, residual, cos, sin, between)
    norm = torch.ones(64, dtype=dtype)
    return [first, between, residual.clone(), chosen.last(layers[1], attended, residual, norm), residual]


@compiled
@pytest.mark.parametrize("bias", [False, True])
@pytest.mark.parametrize(("rows", "head_dim"), [(1, 32), (31, 64), (32, 32), (100, 96), (70, 16)])
def test_fused_steps_are_as_near_to_float32_as_the_usual_ones(rows: int, head_dim: int, bias: bool) -> None:
    """With biases RoPE is fused too; without them the layer has QK-norm, and RoPE comes after it."""
    shapes = [StepShape(2, 1, head_dim, 1e-5, product=product) for product in (by_torch, by_amx)]
    layers = [random_layer(shapes[0], "torch", bias, seed) for seed in (0, 1)]
    tiled = [random_layer(shapes[1], "amx", bias, seed) for seed in (0, 1)]
    fused = steps(shapes[1], tiled)
    assert isinstance(fused, FusedSteps)
    expected = stepped(Steps(shapes[0]), [exact(layer) for layer in layers], rows, torch.float32)
    usual = stepped(Steps(shapes[0]), layers, rows)
    got = stepped(fused, tiled, rows)
    for own, other, right in zip(got, usual, expected, strict=True):
        errors, allowed = (own - right).abs(), (other - right).abs()
        assert errors.mean() <= 1.05 * allowed.mean()
        assert errors.max() <= 1.5 * allowed.max()


@compiled
def test_a_row_is_the_same_whatever_rows_are_beside_it() -> None:
    shape = StepShape(3, 1, 32, 1e-5, product=by_amx)
    layers = [random_layer(shape, "amx", True, seed) for seed in (0, 1)]
    fused = steps(shape, layers)
    residual, attended = torch.randn(80, 64).bfloat16(), torch.randn(80, 96).bfloat16()
    alone = [residual[row : row + 1].clone() for row in range(80)]
    norm = torch.ones(64, dtype=torch.bfloat16)
    whole = fused.last(layers[0], attended, residual, norm)
    single = [fused.last(layers[0], attended[row : row + 1], alone[row], norm) for row in range(80)]
    assert torch.equal(torch.cat(single), whole)


@compiled
def test_a_batch_of_which_nothing_is_read_has_no_rows_at_the_end() -> None:
    shape = StepShape(2, 1, 32, 1e-5, product=by_amx)
    layers = [random_layer(shape, "amx", True, seed) for seed in (0, 1)]
    assert [len(part) for part in stepped(steps(shape, layers), layers, 0)] == [0] * 5
    assert by_amx(torch.empty(0, 64, dtype=torch.bfloat16), layers[0].qkv).shape == (0, 128)


@compiled
def test_threads_never_share_scratch() -> None:
    shape = StepShape(2, 1, 32, 1e-5, product=by_amx)
    layers = [random_layer(shape, "amx", True, seed) for seed in (0, 1)]
    fused = steps(shape, layers)
    alone = {rows: stepped(fused, layers, rows) for rows in range(1, 41)}
    found: list[bool] = []

    def work(rows: int) -> None:
        again = stepped(fused, layers, rows)
        found.append(all(map(torch.equal, again, alone[rows])))

    Lanes(4).call(lambda: Lanes(4).run([partial(work, rows) for rows in [*alone] * 10]))
    assert found == [True] * 400


@compiled
@pytest.mark.parametrize("change", [{"attended_norm": torch.ones(64)}, {"mlp_norm": torch.ones(64)}])
def test_layers_of_other_kinds_take_the_usual_steps(change: dict[str, torch.Tensor]) -> None:
    shape = StepShape(3, 1, 32, 1e-5, product=by_amx)
    layer = random_layer(shape, "amx", True, 0)
    assert type(steps(shape, [layer, replace(layer, **change)])) is Steps
    assert type(steps(shape._replace(activation="gelu_tanh"), [layer])) is Steps


@compiled
@pytest.mark.parametrize("rows", [1, 7, 50])
def test_elementwise_groups_round_as_the_eager_ones_do(rows: int) -> None:
    groups, drawn = Compiled(kernels()), torch.Generator().manual_seed(rows)
    residual, x, weight = (torch.randn(rows, 576, generator=drawn).bfloat16() for _ in range(3))
    before, own = residual.clone(), residual.clone()
    torch.testing.assert_close(
        groups.add_rms_norm(own, x, weight[0], 1e-5), layers.add_rms_norm(before, x, weight[0], 1e-5), rtol=1e-2, atol=0
    )
    assert torch.equal(own, before)
    gate_up = 3 * torch.randn(rows, 96, generator=drawn).bfloat16()
    eager = layers.gated(gate_up.clone(), "silu")
    torch.testing.assert_close(groups.gated(gate_up, "silu"), eager, rtol=1e-2, atol=0)
    heads = torch.randn(rows, 15, 64, generator=drawn).bfloat16()
    turned, (cos, sin) = heads.clone(), rotation(torch.arange(rows), torch.rand(32, generator=drawn))
    rotate(turned[:, :12], cos, sin, out=turned[:, :12])
    groups.rotate(heads, 12, cos, sin)
    torch.testing.assert_close(heads, turned, rtol=1e-2, atol=1e-6)


@compiled
@pytest.mark.parametrize("value", [0.0, -0.0, 90.0, -90.0, 3e38, -3e38, float("inf"), float("nan")])
def test_extreme_gates_are_those_of_torch(value: float) -> None:
    gate_up = torch.full((1, 32), value).bfloat16()
    gate_up[:, 16:] = 1
    eager = layers.gated(gate_up.clone(), "silu")
    torch.testing.assert_close(Compiled(kernels()).gated(gate_up, "silu"), eager, equal_nan=True)


def test_a_machine_without_a_compiler_computes_eagerly(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library, "_has_tiles", lambda: True)
    monkeypatch.setattr(shutil, "which", lambda name: None)
    library.kernels.cache_clear()
    try:
        assert "no C compiler" in str(library.kernels())
        assert library.usable(torch.bfloat16) is None
    finally:
        library.kernels.cache_clear()


def test_a_compiler_that_fails_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    broken = tmp_path / "cc"
    broken.write_text("#!/bin/sh\necho no such flag >&2\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(library, "_has_tiles", lambda: True)
    monkeypatch.setattr(library, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(shutil, "which", lambda name: str(broken))
    library.kernels.cache_clear()
    try:
        assert str(broken) in str(library.kernels())
        assert "no such flag" in str(library.kernels())
    finally:
        library.kernels.cache_clear()


@compiled
def test_half_a_file_in_the_cache_is_made_anew(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(library, "cache_folder", lambda: tmp_path)
    (tmp_path / "kernels").mkdir()
    name = Path(kernels()._name).name
    (tmp_path / "kernels" / name).write_bytes(b"half of a file")
    library.kernels.cache_clear()
    try:
        assert Path(library.kernels()._name) == tmp_path / "kernels" / name
    finally:
        library.kernels.cache_clear()


def test_other_types_take_the_eager_forms() -> None:
    assert library.usable(torch.float32) is None
    assert EAGER.gated(torch.ones(1, 2), "silu").shape == (1, 1)


@compiled
def test_a_branch_that_sees_nothing_of_a_whole_stretch_is_answered() -> None:
    """600 roots without a chain or a prefix: the last ones see only themselves, far behind the first 512 keys."""
    roots = Tree((-1,) * 600, 0)
    attended(
        World(Case([0], [([Ask(-1, 0, 600, 0)], roots)], kv_heads=1, group=3, seed=0), 64, torch.bfloat16), Alone()
    )
