"""Every example in a docstring runs and prints what it says."""

from __future__ import annotations

import doctest
import importlib
from pathlib import Path

import pytest

import quail_frames as qf

PACKAGE = Path(qf.__file__).parent
OPTIONAL = {"triton", "vllm", "ray", "aiohttp"}


def modules_with_examples() -> list[str]:
    """Names of the modules whose source holds a doctest prompt."""
    sources = (path for path in sorted(PACKAGE.rglob("*.py")) if ">>> " in path.read_text(encoding="utf-8"))
    places = (path.relative_to(PACKAGE.parent).with_suffix("") for path in sources)
    return [".".join(place.parts).removesuffix(".__init__") for place in places]


@pytest.mark.parametrize("name", modules_with_examples())
def test_examples_in_docstrings_print_what_they_say(name: str, request: pytest.FixtureRequest) -> None:
    try:
        module = importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name not in OPTIONAL:
            raise
        pytest.skip(f"{name} needs {error.name}")
    request.addfinalizer(qf.configure)  # examples may choose another default engine
    assert doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS).failed == 0
