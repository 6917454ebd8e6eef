"""A query explained: in words, as plain data, as a graph."""

from __future__ import annotations

from quail_frames.optimizer.explain.data import explanation
from quail_frames.optimizer.explain.graph import PlanGraph, plan_graph
from quail_frames.optimizer.explain.text import explain
from quail_frames.plan.calls import describe_call

__all__ = ["PlanGraph", "describe_call", "explain", "explanation", "plan_graph"]
