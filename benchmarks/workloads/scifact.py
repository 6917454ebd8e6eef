"""Claims and abstracts: a join of all with all, column tests, pairs by key, claims that nothing supports."""

from __future__ import annotations

import polars as pl

import quail_frames as qf
from benchmarks.workloads.query import Query

RELEVANT = "Does the abstract {right.text} bear on the claim {left.text}?"
TRIAL = "Does this abstract report a trial with patients? {text}"
STANCES = ["supports", "contradicts", "neither"]


QUERIES = (
    Query(
        "SCIFACT-1",
        "one join of all with all",
        ("claims", "evidence"),
        lambda t: t.claims.ai_join(t.evidence, RELEVANT, selectivity=0.01).select(
            pl.col("id").alias("claim"), pl.col("id_right").alias("abstract")
        ),
        "SELECT c.id AS claim, e.id AS abstract FROM claims c JOIN evidence e "
        "ON AI_FILTER(PROMPT('Does the abstract {1} bear on the claim {0}?', c.text, e.text), {'selectivity': 0.01})",
    ),
    Query(
        "SCIFACT-2",
        "column tests before a filter",
        ("evidence",),
        lambda t: t.evidence.filter(pl.col("is_cited"), qf.ai_if(TRIAL), pl.col("n_sentences") >= 3).select(
            "id", "title"
        ),
        "SELECT id, title FROM evidence WHERE is_cited "
        "AND AI.IF(('Does this abstract report a trial with patients? ', text)) "
        "AND n_sentences >= 3",
        "bigquery",
    ),
    Query(
        "SCIFACT-3",
        "pairs by key over three tables, then classified",
        ("claims", "claim_evidence", "evidence"),
        lambda t: (
            t.claims.join(t.claim_evidence, left_on="id", right_on="claim_id")
            .join(t.evidence, left_on="evidence_id", right_on="id", suffix="_e")
            .select("id", qf.ai_classify("The claim {text} and the abstract {text_e}", STANCES).alias("stance"))
        ),
        "SELECT c.id, AI_CLASSIFY(PROMPT('The claim {0} and the abstract {1}', c.text, e.text), "
        "['supports', 'contradicts', 'neither']) AS stance FROM claims c "
        "JOIN claim_evidence k ON c.id = k.claim_id JOIN evidence e ON k.evidence_id = e.id",
    ),
    Query(
        "SCIFACT-4",
        "claims without a pair: NOT EXISTS",
        ("claims", "evidence"),
        lambda t: t.claims.ai_join(
            t.evidence.filter(pl.col("is_cited")), RELEVANT, how="anti", selectivity=0.01
        ).select("id"),
        "SELECT id FROM claims c WHERE NOT EXISTS (SELECT 1 FROM evidence e WHERE e.is_cited "
        "AND AI_FILTER(PROMPT('Does the abstract {1} bear on the claim {0}?', c.text, e.text), "
        "{'selectivity': 0.01}))",
    ),
)
