"""Each operation's implementation is chosen once, printable, and can be pinned."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

from quail_frames.kernels import PagedContexts, QueryGroups, choices, dispatch, override, pinned, quantize, using
from quail_frames.kernels.dispatch import OPERATIONS, failed_check, implementation, load, parse_pins
from quail_frames.kernels.vendor import attention as vendor
from quail_frames.kernels.vendor.block_scaled_matmul import cublas_scales

CPU = torch.device("cpu")


def test_the_cpu_runs_the_references() -> None:
    assert {choice.name for choice in choices("cpu")} == {"torch"}
    assert [choice.operation for choice in choices("cpu")] == list(OPERATIONS)
    assert str(choices("cpu")[0]) == "quantize: torch; triton: no CUDA device"


def test_the_choice_is_made_once() -> None:
    assert implementation("quantize", CPU) is implementation("quantize", CPU)
    assert choices("cpu")[0] is choices("cpu")[0]


def test_an_override_lasts_as_long_as_its_block() -> None:
    with using(all="torch", quantize="triton"), pytest.raises(ValueError, match="cannot run on cpu: no CUDA device"):
        quantize(torch.zeros(1, 128))
    assert implementation("quantize", CPU)


def test_the_environment_pins_and_an_override_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(dispatch.ENVIRONMENT, "quantize=triton, silu_mul=torch")
    override()
    try:
        with pytest.raises(ValueError, match="quantize is pinned to 'triton'"):
            implementation("quantize", CPU)
        with using(quantize="torch"):
            assert implementation("quantize", CPU)
    finally:
        monkeypatch.delenv(dispatch.ENVIRONMENT)
        override()


def test_an_engines_pins_hold_in_its_thread_before_those_of_the_process() -> None:
    with using(quantize="torch"), pinned({"quantize": "triton"}):
        with pytest.raises(ValueError, match="quantize is pinned to 'triton'"):
            implementation("quantize", CPU)
        with ThreadPoolExecutor(1) as other:
            assert other.submit(implementation, "quantize", CPU).result()
    assert implementation("quantize", CPU)


@pytest.mark.parametrize("text", ["quantise=torch", "quantize=cublas", "all=nothing"])
def test_unknown_names_are_refused_with_the_known_ones(text: str) -> None:
    with pytest.raises(ValueError, match=r"there are: all, quantize|choose of"):
        parse_pins(text)


def test_every_candidate_takes_the_arguments_of_the_reference() -> None:
    pytest.importorskip("triton")
    for operation, candidates in OPERATIONS.items():
        *_, reference = candidates
        wanted = list(inspect.signature(load(reference.target)).parameters)
        for candidate in candidates:
            assert list(inspect.signature(load(candidate.target)).parameters) == wanted, (operation, candidate.name)


@pytest.mark.parametrize(
    ("check", "reason"),
    [
        ("vendor.attention:check_flash_3_prefix", "its check failed: ModuleNotFoundError: .*flash_attn_interface"),
        ("vendor.block_scaled_matmul:check_deep_gemm", "its check failed: ModuleNotFoundError: .*deep_gemm"),
        ("vendor.block_scaled_matmul:check_torch", "its check failed: "),
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="the libraries may work here")
def test_a_library_that_fails_its_check_is_passed_over_with_the_reason(check: str, reason: str) -> None:
    assert re.match(reason, failed_check(check, CPU) or "")


@pytest.mark.parametrize(("dtype", "width"), [(torch.float32, 64), (torch.bfloat16, 512), (torch.bfloat16, 20)])
def test_what_flash_attention_does_not_take_goes_to_triton(
    dtype: torch.dtype, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("triton")
    from quail_frames.kernels.device import attention as by_triton

    for operation in ("prefix_attention", "suffix_attention"):
        monkeypatch.setattr(by_triton, operation, lambda *arguments: "triton")
    q, groups = torch.zeros(3, 2, width, dtype=dtype), QueryGroups.of([3], CPU)
    contexts = PagedContexts(*(torch.zeros(1, dtype=torch.int32) for _ in range(3)))
    assert vendor.flash_3_prefix_attention(q, q, q, contexts, groups, 1.0) == "triton"
    for suffix in (vendor.flash_3_suffix_attention, vendor.flash_2_suffix_attention):
        assert suffix(q, q, q, groups, 1.0) == "triton"


def test_every_vendor_candidate_has_a_check() -> None:
    vendors = [c for candidates in OPERATIONS.values() for c in candidates if c.target.startswith("vendor.")]
    assert vendors
    for candidate in vendors:
        assert candidate.check is not None
        assert callable(load(candidate.check))


def test_cublas_reads_activation_scales_by_column_and_whole_groups_of_four() -> None:
    x = quantize(torch.randn(5, 640, generator=torch.Generator().manual_seed(0)))
    padded, columns = cublas_scales(x, torch.ones(3, 5))
    assert padded.values.shape == (8, 640)
    assert padded.scales.shape == (8, 5)
    assert padded.scales.stride() == (1, 8)
    assert torch.equal(padded.scales[:5], x.scales)
    assert columns.shape == (8, 3)
    assert columns.stride() == (1, 8)


def test_kernels_work_where_triton_is_not_installed() -> None:
    program = (
        "import sys; sys.modules['triton'] = None\n"
        "import torch; from quail_frames import kernels\n"
        "kernels.quantize(torch.ones(1, 128)); kernels.choices('cpu')\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
