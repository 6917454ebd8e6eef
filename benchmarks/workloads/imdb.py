"""Film reviews and aspects of films: filters, joins, classifications and what relational steps do with them."""

from __future__ import annotations

import polars as pl

import quail_frames as qf
from benchmarks.workloads.query import Query, Tables

ENDING = "Does this review tell how the film ends? {text}"
ACTORS = "Does this review praise an actor or an actress? {text}"
COMEDY = "Is this the review of a comedy? {text}"
CRAFT = "Is this a matter of craft rather than of content? {aspect}"
DISCUSSES = "Does the review {text} discuss {aspect}?"
PRAISES = "Does the review {text} praise {right.aspect}?"
TONES = ["enthusiastic", "approving", "disappointed", "hostile"]
SUBJECTS = ["story", "acting", "direction", "effects", "music"]
VERDICTS = ["praised", "criticised", "only mentioned"]


def three_joins(t: Tables) -> qf.LazyFrame:
    """Reviews that discuss what another one praises, and what that one criticises."""
    return (
        t.reviews.ai_join(t.aspects, DISCUSSES, selectivity=0.2)
        .ai_join(t.reviews, "Does the review {right.text} praise {aspect}?", suffix="_r2", selectivity=0.2)
        .ai_join(t.aspects, "Does the review {text_r2} criticise {right.aspect}?", suffix="_a2", selectivity=0.1)
        .select(pl.col("id").alias("first"), pl.col("id_r2").alias("second"), pl.col("aspect_a2").alias("criticised"))
    )


QUERIES = (
    Query(
        "IMDB-1",
        "one filter",
        ("reviews",),
        lambda t: t.reviews.ai_filter(ENDING, selectivity=0.3).select("id", "label"),
        "SELECT id, label FROM reviews "
        "WHERE AI_FILTER(PROMPT('Does this review tell how the film ends? {0}', text), {'selectivity': 0.3})",
    ),
    Query(
        "IMDB-2",
        "two filters in a chain",
        ("reviews",),
        lambda t: t.reviews.filter(qf.ai_if(ENDING, selectivity=0.3), qf.ai_if(ACTORS, selectivity=0.5)).select("id"),
        "SELECT id FROM reviews AS r "
        "WHERE AI.IF(('Does this review tell how the film ends? ', r.text), {'selectivity': 0.3}) "
        "AND AI.IF(('Does this review praise an actor or an actress? ', r.text), {'selectivity': 0.5})",
        "bigquery",
    ),
    Query(
        "IMDB-3",
        "three filters in a chain",
        ("reviews",),
        lambda t: t.reviews.filter(qf.ai_if(COMEDY), qf.ai_if(ACTORS, selectivity=0.5), qf.ai_if(ENDING)).select("id"),
        "SELECT id FROM reviews WHERE AI_FILTER(PROMPT('Is this the review of a comedy? {0}', text)) "
        "AND AI_FILTER(PROMPT('Does this review praise an actor or an actress? {0}', text), {'selectivity': 0.5}) "
        "AND AI_FILTER(PROMPT('Does this review tell how the film ends? {0}', text))",
    ),
    Query(
        "IMDB-4",
        "one join",
        ("reviews", "aspects"),
        lambda t: t.reviews.ai_join(t.aspects, DISCUSSES, selectivity=0.2).select("id", "aspect"),
        "SELECT r.id, a.aspect FROM reviews r JOIN aspects a "
        "ON AI_FILTER(PROMPT('Does the review {0} discuss {1}?', r.text, a.aspect), {'selectivity': 0.2})",
    ),
    Query(
        "IMDB-5",
        "a filter, then a join",
        ("reviews", "aspects"),
        lambda t: t.reviews.ai_filter(ENDING).ai_join(t.aspects, DISCUSSES).select("id", "aspect"),
        "SELECT r.id, a.aspect FROM reviews r JOIN aspects a "
        "ON AI_FILTER(PROMPT('Does the review {0} discuss {1}?', r.text, a.aspect)) "
        "WHERE AI_FILTER(PROMPT('Does this review tell how the film ends? {0}', r.text))",
    ),
    Query(
        "IMDB-6",
        "filters on both sides of a join",
        ("reviews", "aspects"),
        lambda t: t.reviews.ai_filter(ENDING).ai_join(t.aspects.ai_filter(CRAFT), DISCUSSES).select("id", "aspect"),
        "SELECT r.id, a.aspect FROM reviews AS r, aspects AS a "
        "WHERE AI.IF(('Does the review ', r.text, ' discuss ', a.aspect, '?')) "
        "AND AI.IF(('Does this review tell how the film ends? ', r.text)) "
        "AND AI.IF(('Is this a matter of craft rather than of content? ', a.aspect))",
        "bigquery",
    ),
    Query(
        "IMDB-7",
        "two joins that share an anchor, over two aliases",
        ("reviews", "aspects"),
        lambda t: (
            t.reviews.ai_join(t.aspects, DISCUSSES)
            .ai_join(t.aspects, PRAISES, suffix="_a2")
            .select("id", pl.col("aspect").alias("discussed"), pl.col("aspect_a2").alias("praised"))
        ),
        "SELECT r.id, a1.aspect AS discussed, a2.aspect AS praised FROM reviews r "
        "JOIN aspects a1 ON AI_FILTER(PROMPT('Does the review {0} discuss {1}?', r.text, a1.aspect)) "
        "JOIN aspects a2 ON AI_FILTER(PROMPT('Does the review {0} praise {1}?', r.text, a2.aspect))",
    ),
    Query(
        "IMDB-8",
        "a chain of three joins",
        ("reviews", "aspects"),
        three_joins,
        "SELECT r1.id AS first, r2.id AS second, a2.aspect AS criticised FROM reviews r1 "
        "JOIN aspects a1 ON AI.IF(('Does the review ', r1.text, ' discuss ', a1.aspect, '?'), selectivity => 0.2) "
        "JOIN reviews r2 ON AI.IF(('Does the review ', r2.text, ' praise ', a1.aspect, '?'), selectivity => 0.2) "
        "JOIN aspects a2 ON AI.IF(('Does the review ', r2.text, ' criticise ', a2.aspect, '?'), selectivity => 0.1)",
        "bigquery",
    ),
    Query(
        "IMDB-9",
        "a classification with 4 labels",
        ("reviews",),
        lambda t: t.reviews.select("id", "label", qf.ai_classify("text", TONES).alias("tone")),
        "SELECT id, label, AI_CLASSIFY(text, ['enthusiastic', 'approving', 'disappointed', 'hostile']) AS tone "
        "FROM reviews",
    ),
    Query(
        "IMDB-10",
        "a label filter, then a join",
        ("reviews", "aspects"),
        lambda t: (
            t.reviews.filter(qf.ai_classify("text", TONES) == "enthusiastic")
            .ai_join(t.aspects, DISCUSSES)
            .select("id", "aspect")
        ),
        "SELECT r.id, a.aspect FROM reviews r JOIN aspects a "
        "ON AI_FILTER(PROMPT('Does the review {0} discuss {1}?', r.text, a.aspect)) "
        "WHERE AI_CLASSIFY(r.text, ['enthusiastic', 'approving', 'disappointed', 'hostile']) = 'enthusiastic'",
    ),
    Query(
        "IMDB-11",
        "two classifications in a row",
        ("reviews",),
        lambda t: t.reviews.filter(qf.ai_classify("text", TONES).is_in(["disappointed", "hostile"])).select(
            "id", qf.ai_classify("text", TONES).alias("tone"), qf.ai_classify("text", SUBJECTS).alias("subject")
        ),
        "SELECT id, AI_CLASSIFY(text, ['enthusiastic', 'approving', 'disappointed', 'hostile']) AS tone, "
        "AI_CLASSIFY(text, ['story', 'acting', 'direction', 'effects', 'music']) AS subject FROM reviews "
        "WHERE tone IN ('disappointed', 'hostile')",
    ),
    Query(
        "IMDB-12",
        "a classification of joined pairs",
        ("reviews", "aspects"),
        lambda t: t.reviews.ai_join(t.aspects, DISCUSSES).select(
            "id", "aspect", qf.ai_classify("How does {text} speak of {aspect}?", VERDICTS).alias("verdict")
        ),
        "SELECT r.id, a.aspect, AI_CLASSIFY(PROMPT('How does {0} speak of {1}?', r.text, a.aspect), "
        "['praised', 'criticised', 'only mentioned']) AS verdict FROM reviews r JOIN aspects a "
        "ON AI_FILTER(PROMPT('Does the review {0} discuss {1}?', r.text, a.aspect))",
    ),
    Query(
        "IMDB-13",
        "a label as a filter on a join side",
        ("reviews", "aspects"),
        lambda t: t.reviews.ai_join(
            t.aspects.filter(qf.ai_classify("aspect", ["people", "craft", "content"]) == "people"), DISCUSSES
        ).select("id", "aspect"),
        "SELECT r.id, a.aspect FROM reviews r JOIN aspects a "
        "ON AI_FILTER(PROMPT('Does the review {0} discuss {1}?', r.text, a.aspect)) "
        "WHERE AI_CLASSIFY(a.aspect, ['people', 'craft', 'content']) = 'people'",
    ),
    Query(
        "IMDB-14",
        "the second page of ten by length",
        ("reviews",),
        lambda t: (
            t.reviews.ai_filter(ACTORS, selectivity=0.5)
            .select("id", pl.col("text").str.len_chars().alias("length"))
            .sort("length", "id", nulls_last=True)
            .slice(10, 10)
        ),
        "SELECT id, LENGTH(text) AS length FROM reviews "
        "WHERE AI_FILTER(PROMPT('Does this review praise an actor or an actress? {0}', text), {'selectivity': 0.5}) "
        "ORDER BY length, id LIMIT 10 OFFSET 10",
        ordered=True,
    ),
    Query(
        "IMDB-15",
        "the 20 highest scores",
        ("reviews",),
        lambda t: (
            t.reviews.select("id", qf.ai_score(ENDING).alias("score"))
            .sort("score", "id", descending=[True, False], nulls_last=True)
            .head(20)
        ),
        "SELECT id, AI_SCORE(PROMPT('Does this review tell how the film ends? {0}', text)) AS score FROM reviews "
        "ORDER BY score DESC NULLS LAST, id LIMIT 20",
        ordered=True,
    ),
    Query(
        "IMDB-16",
        "the mean score of each group",
        ("reviews",),
        lambda t: t.reviews.group_by("label").agg(qf.ai_score(ACTORS).mean().alias("mean")).sort("label"),
        "SELECT label, AVG(AI.SCORE(('Does this review praise an actor or an actress? ', text))) AS mean FROM reviews "
        "GROUP BY label ORDER BY label",
        "bigquery",
        ordered=True,
    ),
)
