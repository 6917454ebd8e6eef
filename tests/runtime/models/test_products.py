"""Matrix products: every library computes the same, and holds its weights once."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from quail_frames.runtime.lanes import Lanes, spans
from quail_frames.runtime.models.products import CLEARLY, PRODUCTS, fastest, libraries, packed, speeds
from quail_frames.runtime.options import Library

LIBRARIES = list(libraries(torch.float32))


@pytest.mark.parametrize("library", LIBRARIES)
@settings(max_examples=30)
@given(rows=st.integers(1, 70), inputs=st.integers(1, 40), outputs=st.integers(1, 90), bias=st.booleans())
def test_products_are_those_of_the_definition(
    library: Library, rows: int, inputs: int, outputs: int, bias: bool
) -> None:
    x, weight, shift = torch.randn(rows, inputs), torch.randn(outputs, inputs), torch.randn(outputs)
    expected = x.double() @ weight.double().t() + (shift.double() if bias else 0)
    out = torch.empty(rows, outputs)
    for place in (None, out):
        got = PRODUCTS[library](x, packed(weight, library), shift if bias else None, place)
        torch.testing.assert_close(got.double(), expected, rtol=1e-4, atol=1e-4)
    assert got.data_ptr() == out.data_ptr()


@pytest.mark.parametrize("library", ["torch", "numpy"])
def test_weights_as_they_are_read_are_not_copied(library: Library) -> None:
    weight = torch.randn(6, 4).t()
    assert packed(weight, library).data_ptr() == weight.data_ptr()


def test_speeds_are_measured_once_for_every_library() -> None:
    found = speeds(torch.float32)
    assert list(found) == LIBRARIES and all(speed > 0 for speed in found.values())
    assert speeds(torch.float32) is found


@given(noise=st.lists(st.floats(0.96, 1.04), min_size=3, max_size=3), faster=st.sampled_from([1.0, 1.2]))
def test_noise_of_a_measurement_does_not_change_the_choice(noise: list[float], faster: float) -> None:
    true: dict[Library, float] = {"torch": 58.0, "onednn": 58.0, "numpy": 58.0 * faster}
    found = {library: speed * each for (library, speed), each in zip(true.items(), noise, strict=True)}
    assert fastest(found) == ("torch" if faster < CLEARLY else "numpy")


@given(rows=st.integers(0, 5000), threads=st.integers(1, 9))
def test_spans_hold_every_row_once(rows: int, threads: int) -> None:
    found = np.concatenate([np.arange(rows)[span] for span in spans(rows, threads, 512)])
    assert found.tolist() == list(range(rows))


def test_a_fault_in_a_lane_is_raised_once_all_have_stopped() -> None:
    ran, lanes = [], Lanes(3)

    def task(number: int) -> None:
        if number == 2:
            raise ValueError("two")
        ran.append(number)

    with pytest.raises(ValueError, match="two"):
        lanes.call(lambda: lanes.run([lambda number=number: task(number) for number in range(5)]))
    assert set(ran) <= {0, 1, 3, 4}
    assert lanes.call(lambda: 7) == 7


def test_torch_splits_nothing_inside_a_lane() -> None:
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(2)
        lanes, found = Lanes(), []
        lanes.call(lambda: lanes.run([lambda: found.append(torch.get_num_threads())] * 4))
        assert found == [1] * 4 and torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)
