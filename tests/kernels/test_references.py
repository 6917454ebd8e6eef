"""The references say what they should: checked against torch's own functions, exact casts and algebra."""

from __future__ import annotations

import math

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from quail_frames.kernels import (
    PagedContexts,
    Quantized,
    QueryGroups,
    SuffixMask,
    Window,
    add_rms_norm,
    add_rms_norm_quantize,
    block_scaled_matmul,
    dequantize,
    dequantize_weight,
    merge_attention,
    merge_attention_quantize,
    prefix_attention,
    qk_norm_rope_write,
    quantize,
    read_best,
    restricted_head,
    rope_table,
    silu_mul,
    silu_mul_quantize,
    suffix_attention,
    true_false_margins,
    unified_attention,
)
from tests.kernels.comparison import close, randn

SEEDS = st.integers(0, 999)
E4M3_STEP = 2**-4
"""Half a unit in the last of e4m3's four significant bits, relative to the number."""


def doubles(seed: int, *shape: int) -> Tensor:
    return randn(seed, *shape, dtype=torch.float64).cpu()


def nearest_e4m3(x: Tensor) -> Tensor:
    """The nearest of all 254 finite e4m3 numbers, ties to the even bit pattern; an own cast to judge torch's by."""
    bits = torch.arange(256, dtype=torch.uint8)
    numbers = bits.view(torch.float8_e4m3fn).double()
    keep = numbers.isfinite()
    bits, numbers = bits[keep], numbers[keep]
    distance = (x.double()[:, None] - numbers[None, :]).abs() + (bits % 2).double()[None, :] * 1e-12
    return numbers[distance.argmin(dim=1)]


def test_the_cast_to_e4m3_rounds_to_nearest_even() -> None:
    x = torch.cat([randn(1, 2000).cpu() * 50, torch.tensor([0.0, 448.0, -448.0, 17.0, 19.0, 2**-10, 3 * 2**-10])])
    assert torch.equal(x.clamp(-448, 448).to(torch.float8_e4m3fn).double(), nearest_e4m3(x.clamp(-448, 448)))


@given(st.integers(1, 4), st.sampled_from([1, 100, 128, 300]), SEEDS, st.sampled_from([1e-9, 1.0, 1e9]))
def test_quantising_loses_at_most_half_a_step(rows: int, features: int, seed: int, size: float) -> None:
    x = randn(seed, rows, features).cpu() * size
    error = (dequantize(quantize(x)) - x).abs()
    largest = functional.pad(x.abs(), (0, -features % 128)).reshape(rows, -1, 128).amax(-1)
    smallest_step = largest.repeat_interleave(128, 1)[:, :features] * 2**-10 / 448
    assert (error <= torch.maximum(x.abs() * E4M3_STEP, smallest_step) * 1.001).all()


@given(SEEDS)
def test_norm_is_torchs_rms_norm_of_the_sum(seed: int) -> None:
    hidden, residual, weight = doubles(seed, 3, 70), doubles(seed + 1, 3, 70), doubles(seed + 2, 70)
    normed, total = add_rms_norm(hidden, residual, weight, 1e-5)
    torch.testing.assert_close(total, hidden + residual)
    torch.testing.assert_close(normed, functional.rms_norm(hidden + residual, (70,), weight, 1e-5))


def test_without_a_residual_the_total_is_the_input_itself() -> None:
    hidden = doubles(1, 2, 8)
    assert add_rms_norm(hidden, None, torch.ones(8), 1e-5)[1] is hidden


@given(SEEDS)
def test_fused_forms_quantise_what_the_plain_forms_give(seed: int) -> None:
    x, weight = randn(seed, 3, 256).cpu(), randn(seed + 1, 256).cpu()
    out, lse = x.reshape(3, 4, 64), randn(seed + 2, 3, 4).cpu()
    other = (out.flip(0), lse.flip(0))
    pairs = [
        (add_rms_norm_quantize(x, None, weight, 1e-6)[0], add_rms_norm(x, None, weight, 1e-6)[0]),
        (silu_mul_quantize(x), silu_mul(x)),
        (merge_attention_quantize(out, lse, *other), merge_attention(out, lse, *other).flatten(1)),
    ]
    for fused, plain in pairs:
        assert torch.equal(fused.values.float(), quantize(plain).values.float())
        assert torch.equal(fused.scales, quantize(plain).scales)


def test_activations_are_torchs() -> None:
    gate_up = doubles(1, 3, 20)
    gate, up = gate_up[:, :10], gate_up[:, 10:]
    torch.testing.assert_close(silu_mul(gate_up), functional.silu(gate) * up)
    torch.testing.assert_close(silu_mul(gate_up, "gelu_tanh"), functional.gelu(gate, approximate="tanh") * up)


@given(st.integers(1, 5), st.sampled_from([64, 200]), st.sampled_from([128, 300]), SEEDS)
def test_scaled_matmul_multiplies_the_dequantised_sides(tokens: int, outputs: int, inputs: int, seed: int) -> None:
    x = quantize(randn(seed, tokens, inputs).cpu())
    weight = randn(seed + 1, outputs, inputs).cpu().to(torch.float8_e4m3fn)
    scales = randn(seed + 2, -(-outputs // 128), -(-inputs // 128)).cpu().abs()
    wanted = torch.zeros(tokens, outputs, dtype=torch.float64)
    for block in range(0, inputs, 128):  # slice by slice, scaled outside, as the kernel does it
        here = slice(block, block + 128)
        product = x.values[:, here].double() @ weight[:, here].double().T
        columns = scales[:, block // 128].double().repeat_interleave(128)[:outputs]
        wanted += product * x.scales[:, block // 128].double()[:, None] * columns
    exact = Quantized(x.values, x.scales.double())
    torch.testing.assert_close(block_scaled_matmul(exact, weight, scales, torch.float64), wanted)
    assert block_scaled_matmul(x, weight, scales).dtype == torch.bfloat16
    assert dequantize_weight(weight, scales).shape == weight.shape


def test_rope_turns_pairs_as_complex_numbers() -> None:
    frequencies = torch.tensor([1.0, 0.1, 0.01], dtype=torch.float64)
    qkv, positions = doubles(1, 4, 3 * 6), torch.tensor([0, 5, 2, 9])
    arenas = torch.zeros(2, 8, 1, 6, dtype=torch.float64)
    table = rope_table(frequencies, 10).double()
    q, k, v = qk_norm_rope_write(qkv, 1, 1, positions, table, None, None, 1e-6, *arenas, torch.full((4,), -1))
    for turned, plain in ((q[:, 0], qkv[:, :6]), (k[:, 0], qkv[:, 6:12])):
        angle = positions[:, None] * frequencies
        wanted = torch.complex(plain[:, :3], plain[:, 3:]) * torch.polar(torch.ones_like(angle), angle)
        close(turned, torch.cat([wanted.real, wanted.imag], dim=1), 1e-6)
    assert torch.equal(v[:, 0], qkv[:, 12:])
    assert (arenas == 0).all()


def test_keys_and_values_go_to_their_slots() -> None:
    qkv, arenas = doubles(2, 3, 4 * 8), torch.zeros(2, 6, 1, 8, dtype=torch.float64)
    norm = doubles(3, 8)
    _, k, v = qk_norm_rope_write(
        *(qkv, 2, 1, torch.arange(3), None, norm, norm, 1e-6, *arenas, torch.tensor([4, -1, 0]))
    )
    torch.testing.assert_close(k[:, 0], functional.rms_norm(qkv[:, 16:24], (8,), norm, 1e-6))
    assert torch.equal(arenas[0][[4, 0]], k[[0, 2]])
    assert torch.equal(arenas[1][[4, 0]], v[[0, 2]])
    assert (arenas[:, [1, 2, 3, 5]] == 0).all()


def contexts_and_keys(seed: int, length: int) -> tuple[PagedContexts, Tensor, Tensor]:
    pages = torch.tensor([3, 1, 2], dtype=torch.int32)
    paged = PagedContexts(pages, torch.tensor([0]), torch.tensor([length], dtype=torch.int32))
    return paged, doubles(seed, 64, 2, 8), doubles(seed + 1, 64, 2, 8)


@given(st.integers(0, 48), st.integers(1, 6), SEEDS)
def test_attention_is_torchs_over_prefix_and_suffix(length: int, tokens: int, seed: int) -> None:
    paged, k_arena, v_arena = contexts_and_keys(seed, length)
    q, k, v = (doubles(seed + i, tokens, heads, 8) for i, heads in ((2, 4), (3, 2), (4, 2)))
    groups, scale = QueryGroups.of([tokens]), 1 / math.sqrt(8)
    slots = paged.slots(0)
    keys, values = torch.cat([k_arena[slots], k]), torch.cat([v_arena[slots], v])
    visible = torch.ones(tokens, length + tokens, dtype=torch.bool).tril(length)
    wanted = functional.scaled_dot_product_attention(
        *(x.transpose(0, 1)[None] for x in (q, keys, values)), attn_mask=visible, scale=scale, enable_gqa=True
    )[0].transpose(0, 1)
    whole, lse = unified_attention(q, k, v, k_arena, v_arena, paged, groups, scale)
    torch.testing.assert_close(whole, wanted)
    prefix = prefix_attention(q, k_arena, v_arena, paged, groups, scale)
    suffix = suffix_attention(q, k, v, groups, scale)
    torch.testing.assert_close(merge_attention(*prefix, *suffix), whole)
    torch.testing.assert_close(torch.logaddexp(prefix[1], suffix[1]), lse)


@given(SEEDS)
def test_a_tree_token_attends_as_if_its_branch_were_alone(seed: int) -> None:
    parents = np.array([-1, 0, 1, 0, 3, 3, -1])
    q, k, v = (doubles(seed + i, len(parents), 2, 8) for i in range(3))
    out, lse = suffix_attention(q, k, v, QueryGroups.of([len(parents)]), 0.3, SuffixMask.from_parents(parents))
    for token in range(len(parents)):
        branch = [token]
        while parents[branch[0]] >= 0:
            branch.insert(0, int(parents[branch[0]]))
        alone, alone_lse = suffix_attention(q[branch], k[branch], v[branch], QueryGroups.of([len(branch)]), 0.3)
        torch.testing.assert_close(out[token], alone[-1])
        torch.testing.assert_close(lse[token], alone_lse[-1])


def test_a_window_forgets_what_lies_behind_it() -> None:
    paged, k_arena, v_arena = contexts_and_keys(1, 40)
    q, k, v = doubles(2, 3, 2, 8), doubles(3, 3, 2, 8), doubles(4, 3, 2, 8)
    window = Window(torch.tensor([40, 41, 42], dtype=torch.int32), 2)
    groups = QueryGroups.of([3])
    before = unified_attention(q, k, v, k_arena, v_arena, paged, groups, 0.3, None, window)
    slots = paged.slots(0)
    k_arena[slots[:39]], v_arena[slots[:39]] = 7.0, 7.0
    after = unified_attention(q, k, v, k_arena, v_arena, paged, groups, 0.3, None, window)
    torch.testing.assert_close(before, after)


def test_a_query_without_keys_gives_zero_and_no_mass() -> None:
    paged, k_arena, v_arena = contexts_and_keys(1, 0)
    out, lse = prefix_attention(doubles(2, 2, 2, 8), k_arena, v_arena, paged, QueryGroups.of([2]), 0.3)
    assert (out == 0).all()
    assert (lse == -torch.inf).all()
    assert (merge_attention(out, lse, out, lse) == 0).all()


@given(SEEDS, st.lists(st.integers(1, 5), min_size=2, max_size=5))
def test_merging_is_associative_over_any_cut_of_the_keys(seed: int, cuts: list[int]) -> None:
    q, k, v = doubles(seed, 1, 1, 8), doubles(seed + 1, sum(cuts), 1, 8), doubles(seed + 2, sum(cuts), 1, 8)
    scores = (k[:, 0] @ q[0, 0]) * 0.3
    parts = [
        (torch.softmax(s, 0) @ x[:, 0], s.logsumexp(0)) for s, x in zip(scores.split(cuts), v.split(cuts), strict=True)
    ]
    out, lse = parts[0][0][None, None], parts[0][1][None, None]
    for part, mass in parts[1:]:
        out = merge_attention(out, lse, part[None, None], mass[None, None])
        lse = torch.logaddexp(lse, mass[None, None])
    torch.testing.assert_close(out[0, 0], torch.softmax(scores, 0) @ v[:, 0])


def test_head_reads_only_what_is_asked() -> None:
    hidden, head = doubles(1, 5, 8), doubles(2, 9, 8)
    logits = restricted_head(hidden, torch.tensor([4, 0]), head, torch.tensor([[8, 2, -1], [0, 1, 2]]))
    wanted = hidden[[4, 0]] @ head.T
    torch.testing.assert_close(logits[0, :2], wanted[0, [8, 2]])
    torch.testing.assert_close(logits[1], wanted[1, :3])
    assert logits[0, 2] == -torch.inf
    assert read_best(torch.tensor([[1.0, 3.0, 3.0]])).tolist() == [1]


def test_true_false_compares_the_best_spellings() -> None:
    logits = torch.tensor([[1.0, 4.0, 2.0, 3.0], [1.0, 0.0, 2.0, -torch.inf], [1.0, 0.0, 1.0, 0.0]])
    margins = true_false_margins(logits, 2, "max", 1.0, 0.0)
    assert margins.tolist() == [1.0, -1.0, 0.0]


def test_true_false_follows_the_models_pooling_and_calibration() -> None:
    logits = torch.tensor([[1.0, 4.0, 2.0, 3.0]])
    margin = (torch.logaddexp(logits[0, 0], logits[0, 1]) - torch.logaddexp(logits[0, 2], logits[0, 3])) / 2 - 1
    torch.testing.assert_close(true_false_margins(logits, 2, "logsumexp", 2.0, -1.0)[0], margin)
