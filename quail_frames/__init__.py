"""AI operators for Polars data frames: lazy expressions, a cost-based plan, and a streaming runtime of our own.

The Polars front end loads where Polars is installed, the runtime when a model is first asked.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from quail_frames.errors import (
    CallError,
    ColumnError,
    ContextOverflowError,
    ModelError,
    PlanError,
    QuailFramesError,
    QuailFramesWarning,
    SqlError,
)

try:
    import polars as _polars  # noqa: F401
except ModuleNotFoundError:
    _FRONT_END: tuple[str, ...] = ()
else:
    from quail_frames import namespaces as _namespaces  # noqa: F401  registers them
    from quail_frames.lazy.concat import concat as concat
    from quail_frames.lazy.engines import close_default_engine as close_default_engine
    from quail_frames.lazy.engines import configure as configure
    from quail_frames.lazy.engines import default_engine as default_engine
    from quail_frames.lazy.engines import use_engine as use_engine
    from quail_frames.lazy.expressions import ai_classify as ai_classify
    from quail_frames.lazy.expressions import ai_if as ai_if
    from quail_frames.lazy.expressions import ai_score as ai_score
    from quail_frames.lazy.frame import LazyFrame as LazyFrame
    from quail_frames.sql import sql as _sql

    sql = _sql  # the function: it shadows the subpackage of that name, which stays importable

    _FRONT_END = (
        "LazyFrame",
        "SQLContext",
        "ai_classify",
        "ai_if",
        "ai_score",
        "close_default_engine",
        "concat",
        "configure",
        "default_engine",
        "finetune",
        "lazy",
        "sql",
        "use_engine",
    )

if TYPE_CHECKING:
    from quail_frames.lazy.frame import lazy as lazy  # at run time the part `lazy`, which can be called
    from quail_frames.runtime.engine import Engine
    from quail_frames.runtime.group import EngineGroup
    from quail_frames.runtime.report import RunReport
    from quail_frames.sql.context import SQLContext as SQLContext
    from quail_frames.tuning.finetune import finetune as finetune

_ON_USE = {
    "Engine": "quail_frames.runtime.engine",
    "EngineGroup": "quail_frames.runtime.group",
    "finetune": "quail_frames.tuning.finetune",
    "RunReport": "quail_frames.runtime.report",
    "SQLContext": "quail_frames.sql.context",
}

__all__ = [
    "CallError",
    "ColumnError",
    "ContextOverflowError",
    "Engine",
    "EngineGroup",
    "ModelError",
    "PlanError",
    "QuailFramesError",
    "QuailFramesWarning",
    "RunReport",
    "SqlError",
    *_FRONT_END,
]


def __dir__() -> list[str]:
    return sorted(__all__)


def __getattr__(name: str) -> Any:
    """Names imported when first used: the runtime's load torch, the SQL context loads sqlglot."""
    if name in _ON_USE:
        return getattr(import_module(_ON_USE[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
