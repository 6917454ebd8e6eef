"""Reports of adverse events and reactions: keys, filters on both sides, outcomes, EXISTS."""

from __future__ import annotations

import polars as pl

import quail_frames as qf
from benchmarks.workloads.query import Query, Tables

SERIOUS = "Is the event that this report describes serious? {text}"
NEURO = "Is this a reaction of the nervous system? {text}"
CARDIO = "Is this a reaction of the heart or the blood vessels? {text}"
DESCRIBES = "Does the report {left.text} describe the reaction {right.text}?"
OUTCOMES = {
    "recovered": "the patient is well again",
    "improving": "the patient is on the mend, or symptoms are less",
    "not recovered": "the reaction lasts, or left damage",
    "fatal": "the patient died",
}


def serious_neuro_cardio(t: Tables) -> qf.LazyFrame:
    """Serious reports with a reaction of the nervous system and one of the heart."""
    return (
        t.reports.ai_filter(SERIOUS, selectivity=0.3)
        .ai_join(t.reactions.ai_filter(NEURO, selectivity=0.2), DESCRIBES, selectivity=0.02)
        .ai_join(
            t.reactions.ai_filter(CARDIO, selectivity=0.2),
            "Does the report {left.text} describe the reaction {right.text}?",
            suffix="_h",
            selectivity=0.02,
        )
        .select("id", pl.col("text_right").alias("nervous"), pl.col("text_h").alias("heart"))
    )


QUERIES = (
    Query(
        "FAERS-1",
        "a filtered join with an equality key",
        ("reports", "report_reactions"),
        lambda t: (
            t.reports.ai_filter(SERIOUS)
            .ai_join(
                t.report_reactions,
                "Does the report {text} name {span} as a new reaction?",
                left_on="id",
                right_on="report_id",
                selectivity=0.5,
            )
            .select("id", "span")
        ),
        "SELECT r.id, k.span FROM reports r JOIN report_reactions k ON r.id = k.report_id "
        "AND AI_FILTER(PROMPT('Does the report {0} name {1} as a new reaction?', r.text, k.span), "
        "{'selectivity': 0.5}) "
        "WHERE AI_FILTER(PROMPT('Is the event that this report describes serious? {0}', r.text))",
    ),
    Query(
        "FAERS-2",
        "three filters and two joins",
        ("reports", "reactions"),
        serious_neuro_cardio,
        "SELECT r.id, n.text AS nervous, h.text AS heart FROM reports r "
        "JOIN reactions n ON AI_FILTER(PROMPT('Does the report {0} describe the reaction {1}?', r.text, n.text), "
        "{'selectivity': 0.02}) "
        "JOIN reactions h ON AI_FILTER(PROMPT('Does the report {0} describe the reaction {1}?', r.text, h.text), "
        "{'selectivity': 0.02}) "
        "WHERE AI_FILTER(PROMPT('Is the event that this report describes serious? {0}', r.text), {'selectivity': 0.3})"
        " AND AI_FILTER(PROMPT('Is this a reaction of the nervous system? {0}', n.text), {'selectivity': 0.2}) "
        "AND AI_FILTER(PROMPT('Is this a reaction of the heart or the blood vessels? {0}', h.text), "
        "{'selectivity': 0.2})",
    ),
    Query(
        "FAERS-3",
        "4 outcomes with descriptions, after a filter",
        ("reports",),
        lambda t: t.reports.ai_filter(SERIOUS).select(
            "id", qf.ai_classify("text", list(OUTCOMES), descriptions=OUTCOMES).alias("outcome")
        ),
        "SELECT id, AI.CLASSIFY(text, [('recovered', 'the patient is well again'), "
        "('improving', 'the patient is on the mend, or symptoms are less'), "
        "('not recovered', 'the reaction lasts, or left damage'), ('fatal', 'the patient died')]) AS outcome "
        "FROM reports WHERE AI.IF(('Is the event that this report describes serious? ', text))",
        "bigquery",
    ),
    Query(
        "FAERS-4",
        "reports with a reaction: EXISTS",
        ("reports", "reactions"),
        lambda t: (
            t.reports.filter(pl.col("has_adverse_event"))
            .ai_join(t.reactions.ai_filter(CARDIO), DESCRIBES, how="semi", selectivity=0.05)
            .select("id")
        ),
        "SELECT id FROM reports r WHERE r.has_adverse_event AND EXISTS (SELECT 1 FROM reactions x "
        "WHERE AI_FILTER(PROMPT('Is this a reaction of the heart or the blood vessels? {0}', x.text)) "
        "AND AI_FILTER(PROMPT('Does the report {0} describe the reaction {1}?', r.text, x.text), "
        "{'selectivity': 0.05}))",
    ),
)
