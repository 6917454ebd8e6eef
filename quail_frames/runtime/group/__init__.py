"""Several devices of one machine: a process with an engine for each, rows shared out by tokens, results in order."""

from quail_frames.runtime.group.group import EngineGroup

__all__ = ["EngineGroup"]
