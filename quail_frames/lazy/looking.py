"""Looking at a query: what it will do and why, what it would cost elsewhere, and what it did."""

from __future__ import annotations

import json
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

from quail_frames.cost.devices import Device
from quail_frames.cost.shapes import ModelShape, from_config, shape
from quail_frames.errors import PlanError
from quail_frames.lazy.estimates import Estimate
from quail_frames.lazy.pricing import as_run_here, place_named, place_of, prices_of
from quail_frames.optimizer.estimate import PlanEstimate, estimate_plan
from quail_frames.optimizer.explain import PlanGraph, explain, explanation, plan_graph
from quail_frames.optimizer.explain.text import step_lines
from quail_frames.optimizer.explain.words import steps
from quail_frames.plan.logical import Concat, Join, Node
from quail_frames.runtime.named import shape_named
from quail_frames.runtime.report import RunReport

if TYPE_CHECKING:
    from quail_frames.lazy.engines import Runner
    from quail_frames.lazy.frame import LazyFrame
    from quail_frames.lazy.profiling import Profile
    from quail_frames.optimizer.prices import Prices


class Looking:
    """`explain`, `estimate`, `show_graph` and `profile` of a planned frame."""

    _plan: Node
    _engine: Runner | None

    def _optimized(self, prices: Prices | None = None) -> Node:
        raise NotImplementedError

    def _prices(self, engine: Runner | None = None, measure: bool = False) -> Prices:
        """What this query is priced by on its engine, on this one, or on the default one."""
        return prices_of(self._plan, place_of(engine or self._engine, measure))

    def _estimated(self, prices: Prices) -> PlanEstimate:
        return estimate_plan(self._optimized(prices), self._plan, prices)

    @overload
    def explain(self, *, optimized: bool = True, numbers: bool = True, format: Literal["text"] = "text") -> str: ...
    @overload
    def explain(self, *, optimized: bool = True, numbers: bool = True, format: Literal["json"]) -> dict[str, Any]: ...
    def explain(
        self, *, optimized: bool = True, numbers: bool = True, format: Literal["text", "json"] = "text"
    ) -> str | dict[str, Any]:
        """What the query does, in which order the model is asked, and what decided so; no model is asked.

        Rows of frames in memory and of Parquet files are counted, texts are sampled; seconds are the roofline of the
        engine's model on its device, and every decision shows what else was possible at which price.

        Parameters
        ----------
        optimized
            False shows the steps as written only.
        numbers
            False leaves out estimates and decisions.
        format
            `text`, or `json` for the same as plain data (`json.dumps` takes it).

        Notes
        -----
        An open engine on a CPU is measured the first time (two seconds; kept for this machine).
        """
        if not optimized:
            return explain(self._plan) if format == "text" else explanation(self._plan)
        prices = self._prices(measure=True)
        estimate = self._estimated(prices)
        if format == "json":
            return explanation(self._plan, estimate.root.node, estimate)
        return explain(self._plan, estimate.root.node, estimate if numbers else None)

    def estimate(
        self,
        *,
        device: str | Device | None = None,
        model: str | ModelShape | Mapping[str, Any] | Path | None = None,
        price_per_hour: float | None = None,
    ) -> Estimate:
        """What the query would cost on a device with a model; nothing is loaded or asked.

        Parameters
        ----------
        device
            A published profile (`h100-sxm`, `h200`, `b200`, `a100-80`, `l40s`, `rtx-4090`, `m2-max`, ...), `local`
            for this machine's CPU (measured once, two seconds), or a `quail_frames.cost.devices.Device`; None: the
            engine's, or `local` where a model is named.
        model
            A known model (`qwen3-4b-fp8`, `Qwen/Qwen3-8B`, `llama-3.1-8b`, ...), a shape, or the content or path of a
            `config.json`; None: the engine's.
        price_per_hour
            What the device costs an hour, in any currency; no price is built in.

        Returns
        -------
        Estimate
            Seconds, tokens and asks in all and for every step, and the cost where the price is known.

        Raises
        ------
        ModelError, PlanError
            The model's sizes or the device are not known, or the model does not fit the device.

        Examples
        --------
        >>> import polars as pl, quail_frames as qf
        >>> mail = qf.lazy(pl.DataFrame({"body": ["Win a prize!"] * 1000}))
        >>> found = mail.ai_filter("Is {body} spam?").estimate(device="h100-sxm", model="qwen3-4b-fp8")
        >>> found.asks, found.dollars is None
        (1.0, True)
        """
        if device is None and model is None:
            place = place_of(self._engine, measure=True).at(price_per_hour)
        else:
            sizes = place_of(self._engine).target.shape if model is None else _shape(model)
            where = device or "local"
            if where == "local" and model is not None and not isinstance(model, ModelShape):
                sizes = as_run_here(sizes)
            place = place_named(sizes, where).at(price_per_hour)
        return Estimate.of(self._estimated(prices_of(self._plan, place)))

    def show_graph(self, *, optimized: bool = True, **options: Any) -> PlanGraph:
        """The plan as a graph with its estimates: SVG in notebooks, words elsewhere (`.svg` is the drawing).

        Parameters
        ----------
        optimized
            False shows the steps as written.
        **options
            Options of `pl.LazyFrame.show_graph`, accepted so that code written for it runs; they change nothing.
        """
        if not optimized:
            return plan_graph(self._plan, lambda node: steps(node)[-1], explain(self._plan))
        estimate = self._estimated(self._prices())
        found = {id(step.node): step for step in estimate.steps}

        def lines(node: Node) -> list[str]:
            own = steps(node)[-1][:1] if isinstance(node, Join | Concat) else steps(node)[-1]
            own = own[: own.index("  right side:")] if "  right side:" in own else own  # it has boxes of its own
            return [*own, *step_lines(found[id(node)])]

        return plan_graph(estimate.root.node, lines, explain(self._plan, estimate.root.node, estimate))

    def profile(self, *, engine: Runner | None = None) -> Profile:
        """Run the query and give its plan with what was measured beside what was expected.

        Parameters
        ----------
        engine
            Who answers; as in `collect`.

        Returns
        -------
        Profile
            The rows (`frame`), and for every step rows, asks, tokens, seconds and measured / speed of light.
        """
        from quail_frames.lazy.engines import default_engine
        from quail_frames.lazy.profiling import profiled

        chosen = engine or self._engine or default_engine()
        estimate = self._estimated(self._prices(chosen, measure=True))
        return profiled(estimate, lambda: chosen, RunReport(), self.collect_schema())

    def to_sql(self, *, dialect: Literal["snowflake", "bigquery"] = "snowflake", **tables: LazyFrame) -> str:
        """The steps as one SELECT, for plans that SQL can say; `quail_frames.sql` reads it back.

        Parameters
        ----------
        dialect
            `snowflake` or `bigquery`.
        **tables
            The frames that the query started from, by name; others are called t1, t2, …

        Raises
        ------
        PlanError
            SQL has no words for a step or an expression.

        Examples
        --------
        >>> import polars as pl, quail_frames as qf
        >>> mail = qf.lazy(pl.DataFrame({"body": ["Win a prize!"], "id": [1]}))
        >>> print(mail.ai_filter("Is {body} spam?").select("id").to_sql(mail=mail))
        SELECT id
        FROM mail
        WHERE AI_FILTER(PROMPT('Is {0} spam?', body))
        """
        writer = import_module("quail_frames.sql.write")  # by its name: a layer above may not be imported here
        return str(writer.to_sql(self, dialect, tables))

    def collect_schema(self) -> Any:
        """Names and types of the result."""
        raise NotImplementedError


def _shape(model: str | ModelShape | Mapping[str, Any] | Path) -> ModelShape:
    """The shape of a model by its name or config."""
    if isinstance(model, Mapping):
        return from_config(model)
    if isinstance(model, str) and not model.endswith(".json"):
        return shape_named(model) or shape(model)
    if isinstance(model, ModelShape):
        return model
    path = Path(model)
    path = path / "config.json" if path.is_dir() else path
    if not path.is_file():
        raise PlanError(f"there is no file {path}: give a model's config.json, its folder, or a known model's name")
    return from_config(json.loads(path.read_text(encoding="utf-8")), path.parent.name)
