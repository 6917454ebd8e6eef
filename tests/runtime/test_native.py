"""The C kernels of CPUs with AMX give what the eager forms and the definition of attention give."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quail_frames.runtime.lanes import Alone, Lanes
from quail_frames.runtime.models import layers
from quail_frames.runtime.models.layers import EAGER
from quail_frames.runtime.models.rope import rotate, rotation
from quail_frames.runtime.native import library
from quail_frames.runtime.native.attention import NativeAttention
from quail_frames.runtime.native.elementwise import Compiled
from tests.support.attention_cases import LAYER, Ask, Case, Tree, World, cases

FOUND = library.kernels()
LANES = Lanes(2)
compiled = pytest.mark.skipif(isinstance(FOUND, str), reason=f"no C kernels here: {FOUND}")


def kernels() -> ctypes.CDLL:
    assert not isinstance(FOUND, str)
    return FOUND


def attended(world: World, lanes: Lanes | Alone) -> None:
    """Compare every row with the definition; shares and results are bfloat16, so eight bits agree."""
    rows, case = len(world.batch), world.case
    q, kv = world.draw(rows, case.kv_heads * case.group), world.draw(2, rows, case.kv_heads)
    qkv = torch.from_numpy(np.concatenate([q, *kv], axis=1)).to(torch.bfloat16)
    parts = qkv.split([q.shape[1], case.kv_heads, case.kv_heads], dim=1)
    got = NativeAttention(kernels(), world.batch, world.arena, lanes)(LAYER, *parts).double().numpy()
    for own, expected in world.expected(q, kv):
        np.testing.assert_allclose(got[own], expected, atol=0.02, rtol=0.01)


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
