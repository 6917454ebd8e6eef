"""A query's explanation as plain data: numbers, strings, lists and dictionaries that `json.dumps` takes."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from quail_frames.cost.choices import Alternative, Choice
from quail_frames.cost.work import Work
from quail_frames.optimizer.estimate import CallEstimate, PlanEstimate, StepEstimate
from quail_frames.optimizer.explain.words import steps
from quail_frames.plan.calls import describe_call
from quail_frames.plan.logical import Ask, AskPairs, Node, Source, inputs

Data = dict[str, Any]


def explanation(written: Node, planned: Node | None = None, estimate: PlanEstimate | None = None) -> Data:
    """The query as written, and where given as planned with all estimates, decisions and what they rest on."""
    found: Data = {"written": _tree(written)}
    if planned is None or estimate is None:
        return found
    target, statistics = estimate.prices.target, estimate.prices.statistics
    sources = [step.node for step in estimate.steps if isinstance(step.node, Source)]
    return found | {
        "planned": _step(estimate.root),
        "asks": estimate.asks,
        "tokens": estimate.work.new_tokens,
        "seconds": estimate.seconds,
        "speed_of_light": estimate.least_seconds,
        "decisions": [_choice(choice) for choice in estimate.decisions],
        "cost": estimate.cost,
        "priced_by": {
            "model": asdict(target.shape),
            "device": asdict(target.device) | {"peaks": dict(target.device.peaks)},
            "budgets": asdict(target.budgets),
            "notes": list(estimate.prices.notes),
            "tokens_from": statistics.tokens_from,
            "sources": [_source(node, estimate) for node in sources],
        },
    }


def _words(node: Node) -> list[str]:
    return steps(node)[-1]


def _tree(node: Node) -> Data:
    return {"step": type(node).__name__, "words": _words(node), "inputs": [_tree(each) for each in inputs(node)]}


def _step(step: StepEstimate) -> Data:
    """A planned node with what it is expected to do."""
    return {
        "step": type(step.node).__name__,
        "words": _words(step.node),
        "rows_in": step.rows_in,
        "rows": step.rows,
        "asks": step.asks,
        "tokens": step.tokens,
        "regret_tokens": step.regret_tokens,
        "seconds": step.seconds,
        "speed_of_light": step.least_seconds,
        "work": work_data(step.work),
        "physical": _physical(step),
        "decisions": [_choice(choice) for choice in step.decisions],
        "inputs": [_step(each) for each in step.inputs],
    }


def _physical(step: StepEstimate) -> Data | None:
    """What the engine is told to do, of a step that asks a model."""
    if not step.calls:
        return None
    node = step.node
    found: Data = {"operator": "Chain" if isinstance(node, Ask) else "PairJoin"}
    found["calls"] = [_call(call) for call in step.calls]
    if isinstance(node, Ask):
        return found | {"limit": node.limit, "retain": node.retain, "remember": bool(node.remember)}
    assert isinstance(node, AskPairs)
    early = node.anchor == "left" and node.how in ("semi", "anti")
    found |= {"anchor": node.anchor, "stop": "first_true" if early else "never"}
    return found | {"retain": node.retain, "remember": node.remember}


def _call(call: CallEstimate) -> Data:
    figures = call.figures
    return {
        "call": describe_call(call.call),
        "identity": call.call.identity,
        "layout": figures.layout,
        "scoring": figures.scoring,
        "own_tokens": {
            "document": figures.document,
            "instruction": figures.instruction,
            "question": figures.question,
        },
        "context_tokens": call.context_tokens,
        "rows": call.rows,
        "asks": call.asks,
        "selectivity": call.share,
        "selectivity_from": call.share_from or None,
    }


def _choice(choice: Choice) -> Data:
    return {
        "decision": choice.decision,
        "chosen": choice.chosen,
        "because": choice.because or None,
        "formula": choice.formula or None,
        "alternatives": [_alternative(each) for each in choice.alternatives],
    }


def _alternative(alternative: Alternative) -> Data:
    price = alternative.price
    return {
        "name": alternative.name,
        "seconds": None if alternative.refused is not None else alternative.seconds,
        "refused": alternative.refused,
        "work": None if alternative.work is None else work_data(alternative.work),
        "components": None if price is None else [asdict(part) for part in price.components],
    }


def _source(node: Source, estimate: PlanEstimate) -> Data:
    found = estimate.prices.statistics.of(node)
    figures = {name: asdict(column) for name, column in found.columns.items()}
    return {
        "source": node.text,
        "rows": found.rows,
        "rows_from": found.rows_from,
        "sampled": found.sampled,
        "columns": figures,
    }


def work_data(work: Work) -> Data:
    """Work as plain data."""
    return {name: float(value) for name, value in asdict(work).items()}
