"""Every test here runs over the engines that answer without a model's arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec

import pytest

from quail_frames.lazy import engines
from tests.support.reference_engine import ReferenceEngine

NAMES = ["reference", "oracle"] if find_spec("quail_frames.runtime.engine") else ["reference"]


@pytest.fixture
def reference() -> Iterator[ReferenceEngine]:
    """The reference engine as the default engine; it lists what it was asked."""
    with ReferenceEngine() as engine:
        engines.use_engine(engine)
        yield engine


@pytest.fixture(params=NAMES)
def engine(request: pytest.FixtureRequest) -> Iterator[object]:
    """Each deterministic engine in turn as the default engine."""
    if request.param == "reference":
        yield request.getfixturevalue("reference")
        return
    engines.configure("oracle")
    yield engines.default_engine()


@pytest.fixture(autouse=True)
def no_engine_left_open() -> Iterator[None]:
    """Each test makes the default engine that it needs."""
    yield
    engines.close_default_engine()
