"""Growing snapshots of coding agents' runs, longer than a model's context: each says what happens then."""

from __future__ import annotations

import polars as pl

import quail_frames as qf
from benchmarks.workloads.query import Query, Tables

FAILED = "Did the last command fail? {trace}"
EDITED = "Has the agent changed a source file? {trace}"
PHASES = ["reading", "reproducing", "editing", "testing", "finished"]
STATES = ["on track", "stuck", "off the task"]
TOOLS = ["search", "shell", "editor", "tests"]
REPLIES = ["goes on", "repairs", "repeats itself", "gives up"]


def classified(t: Tables) -> qf.LazyFrame:
    """Three classifications of every trace."""
    return t.traces.select(
        "id",
        qf.ai_classify("trace", PHASES, overflow="truncate").alias("phase"),
        qf.ai_classify("trace", STATES, overflow="truncate").alias("state"),
        qf.ai_classify("trace", TOOLS, overflow="truncate").alias("tool"),
    )


QUERIES = (
    Query(
        "SWE-1",
        "a filter of long texts, cut to the context",
        ("traces",),
        lambda t: t.traces.ai_filter(FAILED, overflow="truncate").select("id", "turn_index"),
        "SELECT id, turn_index FROM traces "
        "WHERE AI_FILTER(PROMPT('Did the last command fail? {0}', trace), {'overflow': 'truncate'})",
    ),
    Query(
        "SWE-2",
        "three classifications of the same traces",
        ("traces",),
        classified,
        "SELECT id, "
        "AI_CLASSIFY(trace, ['reading', 'reproducing', 'editing', 'testing', 'finished'], {'overflow': 'truncate'}) "
        "AS phase, AI_CLASSIFY(trace, ['on track', 'stuck', 'off the task'], {'overflow': 'truncate'}) AS state, "
        "AI_CLASSIFY(trace, ['search', 'shell', 'editor', 'tests'], {'overflow': 'truncate'}) AS tool FROM traces",
    ),
    Query(
        "SWE-3",
        "distinct trajectories among passing snapshots",
        ("traces",),
        lambda t: t.traces.ai_filter(EDITED, overflow="truncate").select("trajectory_id").unique(),
        "SELECT DISTINCT trajectory_id FROM traces "
        "WHERE AI.IF(('Has the agent changed a source file? ', trace), overflow => 'truncate')",
        "bigquery",
    ),
    Query(
        "SWE-4",
        "passing counts of groups that have two or more, ordered",
        ("traces",),
        lambda t: (
            t.traces.filter(pl.col("turn_index") > 0, qf.ai_if(FAILED, overflow="null"))
            .group_by("repo")
            .agg(n=pl.len())
            .filter(pl.col("n") >= 2)
            .sort("n", "repo", descending=[True, False], nulls_last=[True, False])
        ),
        "SELECT repo, COUNT(*) AS n FROM traces WHERE turn_index > 0 "
        "AND AI.IF(('Did the last command fail? ', trace), overflow => 'null') GROUP BY repo HAVING n >= 2 "
        "ORDER BY n DESC, repo",
        "bigquery",
        ordered=True,
    ),
    Query(
        "SWE-5",
        "pairs by key (a reply and the message before it), classified",
        ("turns",),
        lambda t: t.turns.join(
            t.turns, left_on=["trajectory_id", "turn_index"], right_on=["trajectory_id", "next_index"]
        ).select(
            "id",
            qf.ai_classify(
                "The reply {message} to {message_right}", REPLIES, overflow="truncate", selectivity=0.25
            ).alias("kind"),
        ),
        "SELECT reply.id, AI_CLASSIFY(PROMPT('The reply {0} to {1}', reply.message, before.message), "
        "['goes on', 'repairs', 'repeats itself', 'gives up'], {'overflow': 'truncate', 'selectivity': 0.25}) AS kind "
        "FROM turns reply JOIN turns before ON reply.trajectory_id = before.trajectory_id "
        "AND reply.turn_index = before.next_index",
    ),
)
