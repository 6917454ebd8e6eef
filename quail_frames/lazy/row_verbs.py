"""The AI verbs about single rows: each is a relational step that holds one call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Self

from quail_frames.lazy.checks import checked_name
from quail_frames.lazy.expressions import Column, ai_classify, ai_if, ai_score
from quail_frames.lazy.relational import Relational
from quail_frames.plan.calls import Layout, Overflow, Scoring


class RowVerbs(Relational):
    """Filter, score and classify rows by a question about each."""

    def ai_filter(
        self,
        template: str,
        *columns: Column,
        selectivity: float | None = None,
        layout: Layout = "auto",
        overflow: Overflow = "error",
    ) -> Self:
        """Rows whose answer is TRUE; parameters and errors are those of `ai_if`."""
        return self.filter(ai_if(template, *columns, selectivity=selectivity, layout=layout, overflow=overflow))

    def ai_score(
        self,
        template: str,
        *columns: Column,
        name: str | None = None,
        selectivity: float | None = None,
        layout: Layout = "auto",
        overflow: Overflow = "error",
    ) -> Self:
        """A column (`name`, or `<first column>_score`) with the probability of TRUE; parameters as `ai_score`."""
        expr = ai_score(template, *columns, selectivity=selectivity, layout=layout, overflow=overflow)
        return self.with_columns(expr if name is None else expr.alias(checked_name(name)))

    def ai_classify(
        self,
        input: Column,
        labels: Sequence[str],
        *,
        name: str | None = None,
        descriptions: Mapping[str, str] | Sequence[str | None] | None = None,
        task_description: str | None = None,
        selectivity: float | None = None,
        layout: Layout = "auto",
        scoring: Scoring = "auto",
        overflow: Overflow = "error",
        probabilities: bool = False,
    ) -> Self:
        """A column (`name`, or `<first column>_label`) with one of `labels`; parameters as `ai_classify`.

        With `probabilities` a second column `<name>_probabilities` holds a struct with one Float64 a label.
        """
        expr = ai_classify(
            input,
            labels,
            descriptions=descriptions,
            task_description=task_description,
            selectivity=selectivity,
            layout=layout,
            scoring=scoring,
            overflow=overflow,
            probabilities=probabilities,
        )
        name = expr.meta.output_name() if name is None else checked_name(name)
        if not probabilities:
            return self.with_columns(expr.alias(name))
        return self.with_columns(
            expr.struct.field("label").alias(name),
            expr.struct.field("probabilities").alias(f"{name}_probabilities"),
        )
