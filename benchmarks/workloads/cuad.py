"""Commercial contracts, many of them longer than a model's context."""

from __future__ import annotations

import polars as pl

import quail_frames as qf
from benchmarks.workloads.query import Query

CAP = "Does this contract limit the liability of a party? {text}"
AREAS = ["goods", "services", "licence of rights", "joint business"]


QUERIES = (
    Query(
        "CUAD-1",
        "a column test and a filter of long texts, null where they do not fit",
        ("contracts",),
        lambda t: t.contracts.filter(pl.col("text").str.len_chars() > 1000, qf.ai_if(CAP, overflow="null")).select(
            "id"
        ),
        "SELECT id FROM contracts WHERE CHAR_LENGTH(text) > 1000 "
        "AND AI.IF(('Does this contract limit the liability of a party? ', text), overflow => 'null')",
        "bigquery",
    ),
    Query(
        "CUAD-2",
        "a filter, then labels, of long texts cut to the context",
        ("contracts",),
        lambda t: t.contracts.ai_filter(CAP, overflow="truncate").select(
            "id", qf.ai_classify("text", AREAS, overflow="truncate").alias("area")
        ),
        "SELECT id, AI_CLASSIFY(text, ['goods', 'services', 'licence of rights', 'joint business'], "
        "{'overflow': 'truncate'}) AS area FROM contracts "
        "WHERE AI_FILTER(PROMPT('Does this contract limit the liability of a party? {0}', text), "
        "{'overflow': 'truncate'})",
    ),
)
