"""What `import quail_frames` adds to Polars: `pl.Expr.ai`, and the AI verbs on frames.

Polars namespaces are attributes; a verb such as `df.ai_filter(...)` is a namespace that can be called.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import polars as pl

from quail_frames.lazy.expressions import Column, ai_classify, ai_if, ai_score
from quail_frames.lazy.verbs import EagerVerbs, Verbs, callable_namespace
from quail_frames.plan.calls import Layout, Overflow, Scoring


@pl.api.register_expr_namespace("ai")
class ExprAi:
    """Questions about this expression's value: `pl.col("body").ai.if_("Is it spam?")`."""

    def __init__(self, expr: pl.Expr) -> None:
        self._expr = expr

    def if_(
        self,
        template: str,
        *columns: Column,
        selectivity: float | None = None,
        layout: Layout = "auto",
        overflow: Overflow = "error",
    ) -> pl.Expr:
        """`ai_if` about this expression; `{0}` in the template stands for it, and `columns` follow it.

        >>> import polars as pl, quail_frames as qf
        >>> pl.col("body").ai.if_("Is it spam?").meta.output_name()
        'body_if'
        """
        return ai_if(template, self._expr, *columns, selectivity=selectivity, layout=layout, overflow=overflow)

    def score(
        self,
        template: str,
        *columns: Column,
        selectivity: float | None = None,
        layout: Layout = "auto",
        overflow: Overflow = "error",
    ) -> pl.Expr:
        """`ai_score` about this expression; `{0}` in the template stands for it, and `columns` follow it."""
        return ai_score(template, self._expr, *columns, selectivity=selectivity, layout=layout, overflow=overflow)

    def classify(
        self,
        labels: Sequence[str],
        *,
        descriptions: Mapping[str, str] | Sequence[str | None] | None = None,
        task_description: str | None = None,
        selectivity: float | None = None,
        layout: Layout = "auto",
        scoring: Scoring = "auto",
        overflow: Overflow = "error",
        probabilities: bool = False,
    ) -> pl.Expr:
        """`ai_classify` of this expression."""
        return ai_classify(
            self._expr,
            labels,
            descriptions=descriptions,
            task_description=task_description,
            selectivity=selectivity,
            layout=layout,
            scoring=scoring,
            overflow=overflow,
            probabilities=probabilities,
        )


pl.api.register_lazyframe_namespace("ai")(Verbs)
pl.api.register_dataframe_namespace("ai")(EagerVerbs)
for _name in ("filter", "score", "classify", "join"):
    pl.api.register_lazyframe_namespace(f"ai_{_name}")(callable_namespace(Verbs, _name))
    pl.api.register_dataframe_namespace(f"ai_{_name}")(callable_namespace(EagerVerbs, _name))
