"""Settings that every test shares."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from quail_frames.plan.selectivity import SEEN

# No deadline: the first example of a property often pays for a lazy import or a kernel compilation.
settings.register_profile("development", deadline=None, print_blob=True)
settings.register_profile(
    "ci", deadline=None, print_blob=True, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("ci" if os.environ.get("CI") else "development")


@pytest.fixture(autouse=True)
def nothing_remembered() -> Iterator[None]:
    """What one test's queries saw of their calls does not order the questions of another's."""
    SEEN.forget()
    yield
