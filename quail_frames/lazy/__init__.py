"""What the user says: AI expressions, prompts, the lazy frame, and driving a plan through the engine.

The only part (with `namespaces`) that knows Polars; imports optimizer, runtime and plan.
`quail_frames.lazy` is at once this part and the function `qf.lazy(frame)`: the module can be called.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from quail_frames.lazy.frame import LazyFrame


class CallableModule(ModuleType):
    """This module, which is also the function `quail_frames.lazy.frame.lazy`."""

    def __call__(self, frame: Any, *, engine: Any = None) -> LazyFrame:
        """A planned frame over a Polars frame; see `quail_frames.lazy.frame.lazy`."""
        from quail_frames.lazy.frame import lazy

        return lazy(frame, engine=engine)


sys.modules[__name__].__class__ = CallableModule
