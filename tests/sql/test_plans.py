"""SQL gives the plan that a Python user writes: the same steps, and the same answers."""

from __future__ import annotations

from collections.abc import Callable

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import quail_frames as qf

REVIEWS = pl.DataFrame(
    {
        "id": [1, 2, 3, 4, 5, 6],
        "movie": ["m1", "m1", "m2", "m2", "m3", None],
        "review": ["loved the ending", "dull", None, "great cast; 'wow'", "", "fine"],
        "stars": [5, 1, 3, 5, None, 4],
    }
)
ASPECTS = pl.DataFrame(
    {"movie": ["m1", "m2", "m2", "m9"], "aspect": ["plot", "acting", "music", "plot"], "weight": [1, 2, 4, 3]}
)
LABELS = ["plot", "acting", "other"]
GOOD = "Is {review} good?"
ENDING = "Does {review} discuss the ending?"
PAIR = "Does {review} discuss {aspect}?"

Frames = tuple[qf.LazyFrame, qf.LazyFrame]
Query = tuple[str, str, Callable[[qf.LazyFrame, qf.LazyFrame], qf.LazyFrame]]

QUERIES: dict[str, Query] = {
    "one filter": (
        "snowflake",
        "SELECT * FROM reviews WHERE AI_FILTER(PROMPT('Is {0} good?', review))",
        lambda r, a: r.ai_filter(GOOD),
    ),
    "a filter with a selectivity, as published": (
        "bigquery",
        "SELECT id FROM reviews AS r WHERE AI.IF(PROMPT('Is {0} good?', r.review), {'selectivity': 0.25})",
        lambda r, a: r.ai_filter(GOOD, selectivity=0.25).select("id"),
    ),
    "a filter with BigQuery's tuple": (
        "bigquery",
        "SELECT id FROM reviews WHERE AI.IF(('Is ', review, ' good?'), connection_id => 'us.example')",
        lambda r, a: r.ai_filter(GOOD).select("id"),
    ),
    "a filter with BigQuery's named prompt": (
        "bigquery",
        "SELECT id FROM reviews WHERE AI.IF(prompt => ('Is ', review, ' good?'), selectivity => 0.5)",
        lambda r, a: r.ai_filter(GOOD, selectivity=0.5).select("id"),
    ),
    "a filter with a concatenated prompt": (
        "snowflake",
        "SELECT id FROM reviews WHERE AI_FILTER('Is ' || review || ' {good}?')",
        lambda r, a: r.ai_filter("Is {review} {{good}}?").select("id"),
    ),
    "a question about a column": (
        "snowflake",
        "SELECT id FROM reviews WHERE AI_FILTER('Is it good?', review)",
        lambda r, a: r.ai_filter("Is it good?", "review").select("id"),
    ),
    "three filters and a column test": (
        "snowflake",
        "SELECT id FROM reviews WHERE AI_FILTER(PROMPT('Is {0} good?', review)) AND stars >= 3 "
        "AND AI_FILTER(PROMPT('Does {0} discuss the ending?', review)) AND AI_FILTER('Is it long?', review)",
        lambda r, a: r.filter(
            qf.ai_if(GOOD), pl.col("stars") >= 3, qf.ai_if(ENDING), qf.ai_if("Is it long?", "review")
        ).select("id"),
    ),
    "OR and NOT": (
        "bigquery",
        "SELECT id FROM reviews WHERE AI.IF(('Is ', review, ' good?')) OR NOT AI.IF('Is it long?', review)",
        lambda r, a: r.filter(qf.ai_if(GOOD) | ~qf.ai_if("Is it long?", "review")).select("id"),
    ),
    "two columns in one prompt": (
        "snowflake",
        "SELECT id FROM reviews WHERE AI_FILTER(PROMPT('Does {1} fit {0}, {1}?', movie, review))",
        lambda r, a: r.filter(qf.ai_if("Does {1} fit {0}, {1}?", "movie", "review")).select("id"),
    ),
    "a label in SELECT": (
        "snowflake",
        "SELECT id, AI_CLASSIFY(review, ['plot', 'acting', 'other']) AS topic FROM reviews",
        lambda r, a: r.select("id", qf.ai_classify("review", LABELS).alias("topic")),
    ),
    "a label beside all columns": (
        "snowflake",
        "SELECT *, AI_CLASSIFY(review, ['plot', 'acting', 'other']) FROM reviews",
        lambda r, a: r.ai_classify("review", LABELS),
    ),
    "a label out of Snowflake's object": (
        "snowflake",
        "SELECT AI_CLASSIFY(review, ['plot', 'acting', 'other']):labels[0]::string AS topic FROM reviews",
        lambda r, a: r.select(qf.ai_classify("review", LABELS).alias("topic")),
    ),
    "labels with descriptions and a task": (
        "snowflake",
        "SELECT AI_CLASSIFY(review, [{'label': 'plot', 'description': 'what happens'}, {'label': 'acting'}, 'other'],"
        " {'task_description': 'the main topic', 'selectivity': 0.2}) AS topic FROM reviews",
        lambda r, a: r.select(
            qf.ai_classify(
                "review",
                LABELS,
                descriptions={"plot": "what happens"},
                task_description="the main topic",
                selectivity=0.2,
            ).alias("topic")
        ),
    ),
    "labels as pairs, named arguments": (
        "bigquery",
        "SELECT AI.CLASSIFY(input => review, categories => [('plot', 'what happens'), ('acting', 'who "
        "plays')]) AS topic"
        " FROM reviews",
        lambda r, a: r.select(
            qf.ai_classify("review", ["plot", "acting"], descriptions=["what happens", "who plays"]).alias("topic")
        ),
    ),
    "a classification of two columns": (
        "snowflake",
        "SELECT AI_CLASSIFY(PROMPT('Movie {0}: {1}', movie, review), ['plot', 'acting', 'other']) AS topic "
        "FROM reviews",
        lambda r, a: r.select(qf.ai_classify("Movie {movie}: {review}", LABELS).alias("topic")),
    ),
    "probabilities": (
        "snowflake",
        "SELECT *, AI_CLASSIFY(review, ['plot', 'acting', 'other'], {'probabilities': TRUE}) AS topic FROM reviews",
        lambda r, a: r.ai_classify("review", LABELS, name="topic", probabilities=True),
    ),
    "a label test with =": (
        "bigquery",
        "SELECT id FROM reviews WHERE AI.CLASSIFY(review, ['plot', 'acting', 'other']) = 'plot'",
        lambda r, a: r.filter(qf.ai_classify("review", LABELS) == "plot").select("id"),
    ),
    "a label returned and tested with IN": (
        "snowflake",
        "SELECT id, AI_CLASSIFY(review, ['plot', 'acting', 'other']) AS topic FROM reviews WHERE topic IN "
        "('plot', 'other')",
        lambda r, a: r.filter(qf.ai_classify("review", LABELS).is_in(["plot", "other"])).select(
            "id", qf.ai_classify("review", LABELS).alias("topic")
        ),
    ),
    "two classifications in a row": (
        "bigquery",
        "SELECT AI.CLASSIFY(review, ['plot', 'acting', 'other']) AS topic, AI.CLASSIFY(review, ['yes', 'no']) AS fit "
        "FROM reviews WHERE AI.CLASSIFY(review, ['plot', 'acting', 'other']) <> 'other'",
        lambda r, a: r.filter(qf.ai_classify("review", LABELS) != "other").select(
            topic=qf.ai_classify("review", LABELS), fit=qf.ai_classify("review", ["yes", "no"])
        ),
    ),
    "the highest scores": (
        "snowflake",
        "SELECT id, AI_SCORE(PROMPT('Is {0} good?', review)) AS score FROM reviews ORDER BY score DESC NULLS "
        "LAST LIMIT 3",
        lambda r, a: (
            r.select("id", qf.ai_score(GOOD).alias("score")).sort("score", descending=True, nulls_last=True).head(3)
        ),
    ),
    "a second page": (
        "snowflake",
        "SELECT * FROM reviews WHERE AI_FILTER(PROMPT('Is {0} good?', review)) ORDER BY LENGTH(review), id "
        "LIMIT 2 OFFSET 2",
        lambda r, a: r.ai_filter(GOOD).sort(pl.col("review").str.len_chars(), "id", nulls_last=True).slice(2, 2),
    ),
    "distinct values of passing rows": (
        "bigquery",
        "SELECT DISTINCT movie FROM reviews WHERE AI.IF(('Is ', review, ' good?'))",
        lambda r, a: r.ai_filter(GOOD).select("movie").unique(),
    ),
    "counts a class, most first": (
        "snowflake",
        "SELECT AI_CLASSIFY(review, ['plot', 'acting', 'other']) AS topic, COUNT(*) AS n FROM reviews GROUP BY topic "
        "ORDER BY n DESC, topic",
        lambda r, a: (
            r.group_by(qf.ai_classify("review", LABELS).alias("topic"))
            .agg(pl.len().alias("n"))
            .sort("n", "topic", descending=[True, False], nulls_last=[False, True])
        ),
    ),
    "passing counts a group, ordered": (
        "bigquery",
        "SELECT movie, COUNT(*) AS n FROM reviews WHERE AI.IF(('Is ', review, ' good?')) GROUP BY movie "
        "HAVING n >= 1 ORDER BY n DESC, movie",
        lambda r, a: (
            r.ai_filter(GOOD)
            .group_by("movie")
            .agg(n=pl.len())
            .filter(pl.col("n") >= 1)
            .sort("n", "movie", descending=[True, False], nulls_last=[True, False])
        ),
    ),
    "the mean score of each group": (
        "snowflake",
        "SELECT movie, AVG(AI_SCORE(PROMPT('Is {0} good?', review))) AS mean FROM reviews GROUP BY movie "
        "ORDER BY movie",
        lambda r, a: r.group_by("movie").agg(qf.ai_score(GOOD).mean().alias("mean")).sort("movie", nulls_last=True),
    ),
    "CASE on an answer": (
        "snowflake",
        "SELECT id, CASE WHEN AI_FILTER(PROMPT('Is {0} good?', review)) THEN 'good' ELSE 'bad' END AS word "
        "FROM reviews",
        lambda r, a: r.select(
            "id", pl.when(qf.ai_if(GOOD)).then(pl.lit("good")).otherwise(pl.lit("bad")).alias("word")
        ),
    ),
    "pairs by key, then classified": (
        "snowflake",
        "SELECT r.id, AI_CLASSIFY(PROMPT('{0} / {1}', r.review, a.aspect), ['plot', 'acting', 'other']) AS topic "
        "FROM reviews r JOIN aspects a ON r.movie = a.movie",
        lambda r, a: r.join(a, on="movie").select("id", qf.ai_classify("{review} / {aspect}", LABELS).alias("topic")),
    ),
    "a filter on both sides of a join by key": (
        "snowflake",
        "SELECT r.id, a.aspect FROM reviews r JOIN aspects a ON r.movie = a.movie "
        "WHERE AI_FILTER('Is it good?', r.review) AND AI_FILTER('Is it about people?', a.aspect)",
        lambda r, a: (
            r.ai_filter("Is it good?", "review")
            .join(a.ai_filter("Is it about people?", "aspect"), on="movie")
            .select("id", "aspect")
        ),
    ),
    "EXISTS by key": (
        "bigquery",
        "SELECT * FROM reviews r WHERE EXISTS (SELECT 1 FROM aspects a WHERE a.movie = r.movie AND a.aspect = 'plot')",
        lambda r, a: r.join(a.filter(pl.col("aspect") == "plot"), on="movie", how="semi"),
    ),
    "an AI join": (
        "snowflake",
        "SELECT r.id, a.aspect FROM reviews r JOIN aspects a "
        "ON AI_FILTER(PROMPT('Does {0} discuss {1}?', r.review, a.aspect), {'selectivity': 0.1})",
        lambda r, a: r.ai_join(a, PAIR, selectivity=0.1).select("id", "aspect"),
    ),
    "an AI join by a comma": (
        "bigquery",
        "SELECT r.id, a.aspect FROM reviews AS r, aspects AS a "
        "WHERE AI.IF(('Does ', r.review, ' discuss ', a.aspect, '?')) AND r.stars > 1",
        lambda r, a: r.filter(pl.col("stars") > 1).ai_join(a, PAIR).select("id", "aspect"),
    ),
    "filters on both sides of an AI join": (
        "snowflake",
        "SELECT r.id, a.aspect FROM reviews r JOIN aspects a "
        "ON AI_FILTER(PROMPT('Does {0} discuss {1}?', r.review, a.aspect)) "
        "WHERE AI_FILTER('Is it good?', r.review) AND AI_CLASSIFY(a.aspect, ['people', 'things']) = 'people'",
        lambda r, a: (
            r.ai_filter("Is it good?", "review")
            .ai_join(a.filter(qf.ai_classify("aspect", ["people", "things"]) == "people"), PAIR)
            .select("id", "aspect")
        ),
    ),
    "an AI join with a key and a column test": (
        "snowflake",
        "SELECT r.id, a.aspect FROM reviews r JOIN aspects a ON r.movie = a.movie AND r.stars > a.weight "
        "AND AI_FILTER(PROMPT('Does {0} discuss {1}?', r.review, a.aspect))",
        lambda r, a: r.ai_join(a, PAIR, on="movie", where=pl.col("stars") > pl.col("weight")).select("id", "aspect"),
    ),
    "a left AI join": (
        "bigquery",
        "SELECT r.id, a.aspect FROM reviews r LEFT JOIN aspects a ON r.movie = a.movie "
        "AND AI.IF(('Does ', r.review, ' discuss ', a.aspect, '?'))",
        lambda r, a: r.ai_join(a, PAIR, how="left", on="movie").select("id", "aspect"),
    ),
    "a semi AI join": (
        "snowflake",
        "SELECT * FROM reviews r WHERE EXISTS (SELECT 1 FROM aspects a "
        "WHERE AI_FILTER(PROMPT('Does {0} discuss {1}?', r.review, a.aspect)) AND a.aspect <> 'music')",
        lambda r, a: r.ai_join(a.filter(pl.col("aspect") != "music"), PAIR, how="semi"),
    ),
    "an anti AI join": (
        "bigquery",
        "SELECT id FROM reviews r WHERE stars > 1 AND NOT EXISTS (SELECT 1 FROM aspects a "
        "WHERE a.movie = r.movie AND AI.IF(('Does ', r.review, ' discuss ', a.aspect, '?')))",
        lambda r, a: r.filter(pl.col("stars") > 1).ai_join(a, PAIR, on="movie", how="anti").select("id"),
    ),
    "a self join by alias": (
        "snowflake",
        "SELECT a.id AS one, b.id AS other FROM reviews a JOIN reviews b ON a.movie = b.movie AND a.id < b.id "
        "AND AI_FILTER(PROMPT('Do {0} and {1} agree?', a.review, b.review))",
        lambda r, a: r.ai_join(
            r, "Do {left.review} and {right.review} agree?", on="movie", where=pl.col("id") < pl.col("id_right")
        ).select(pl.col("id").alias("one"), pl.col("id_right").alias("other")),
    ),
    "two AI joins that share an anchor": (
        "snowflake",
        "SELECT r.id, a1.aspect AS first, a2.aspect AS second FROM reviews r "
        "JOIN aspects a1 ON AI_FILTER(PROMPT('Does {0} discuss {1}?', r.review, a1.aspect)) "
        "JOIN aspects a2 ON AI_FILTER(PROMPT('Does {0} praise {1}?', r.review, a2.aspect))",
        lambda r, a: (
            r.ai_join(a, PAIR)
            .ai_join(a, "Does {review} praise {right.aspect}?", suffix="_a2")
            .select("id", pl.col("aspect").alias("first"), pl.col("aspect_a2").alias("second"))
        ),
    ),
    "a chain of three AI joins": (
        "bigquery",
        "SELECT r1.id AS one, r2.id AS two, a2.aspect FROM reviews r1 "
        "JOIN aspects a1 ON AI.IF(('Does ', r1.review, ' discuss ', a1.aspect, '?')) "
        "JOIN reviews r2 ON AI.IF(('Does ', r2.review, ' discuss ', a1.aspect, '?')) "
        "JOIN aspects a2 ON AI.IF(('Does ', r2.review, ' praise ', a2.aspect, '?'))",
        lambda r, a: (
            r.ai_join(a, PAIR)
            .ai_join(r, "Does {right.review} discuss {aspect}?", suffix="_r2")
            .ai_join(a, "Does {review_r2} praise {right.aspect}?", suffix="_a2")
            .select(pl.col("id").alias("one"), pl.col("id_r2").alias("two"), pl.col("aspect_a2").alias("aspect"))
        ),
    ),
    "a classification of joined pairs": (
        "snowflake",
        "SELECT r.id, AI_CLASSIFY(PROMPT('{0}: {1}', a.aspect, r.review), ['plot', 'acting', 'other']) AS topic "
        "FROM reviews r CROSS JOIN aspects a WHERE AI_FILTER(PROMPT('Does {0} discuss {1}?', r.review, a.aspect))",
        lambda r, a: r.ai_join(a, PAIR).select("id", qf.ai_classify("{aspect}: {review}", LABELS).alias("topic")),
    ),
    "AI conditions between two tables joined by OR": (
        "snowflake",
        "SELECT r.id, a.aspect FROM reviews r JOIN aspects a ON r.movie = a.movie "
        "AND (AI_FILTER(PROMPT('Does {0} discuss {1}?', r.review, a.aspect)) OR a.aspect = 'plot')",
        lambda r, a: r.join(a, on="movie").filter(qf.ai_if(PAIR) | (pl.col("aspect") == "plot")).select("id", "aspect"),
    ),
    "a query over a query": (
        "snowflake",
        "WITH good AS (SELECT * FROM reviews WHERE AI_FILTER(PROMPT('Is {0} good?', review))) "
        "SELECT movie, MAX(stars) AS best FROM (SELECT * FROM good WHERE stars > 1) AS g GROUP BY movie",
        lambda r, a: r.ai_filter(GOOD).filter(pl.col("stars") > 1).group_by("movie").agg(best=pl.col("stars").max()),
    ),
}


@pytest.fixture(autouse=True)
def oracle() -> None:
    """Answers from a hash."""
    qf.configure(model="oracle")


@pytest.mark.parametrize("name", QUERIES)
def test_sql_and_python_are_the_same_plan(name: str) -> None:
    dialect, text, build = QUERIES[name]
    ours = qf.sql(text, dialect=dialect, reviews=REVIEWS, aspects=ASPECTS)  # type: ignore[arg-type]
    theirs = build(qf.lazy(REVIEWS), qf.lazy(ASPECTS))
    assert ours.explain() == theirs.explain()
    assert ours._plan == theirs._plan
    assert ours._optimized() == theirs._optimized()
    assert ours.collect_schema() == theirs.collect_schema()
    assert_frame_equal(ours.collect(), theirs.collect(), check_row_order=False)


def test_answers_are_named_as_in_python() -> None:
    frame = pl.DataFrame({"odd name": ["good"]})
    query = """SELECT AI_FILTER('Is it good?', "odd name"), AI_SCORE('Is it good?', "odd name"),
        AI_CLASSIFY(UPPER("odd name"), ['plot', 'acting']), "odd name", COUNT(*) FROM t GROUP BY 1, 2, 3, 4"""
    names = qf.sql(query, t=frame).collect().columns
    assert names == ["odd name_if", "odd name_score", "odd name_label", "odd name", "COUNT(*)"]


@pytest.mark.parametrize(
    "condition", ["AI_FILTER(PROMPT('Does {0} discuss {1}?', r.review, a.aspect))", "a.weight > 1"]
)
def test_a_left_joins_key_is_null_where_there_is_no_partner(condition: str) -> None:
    def rows(query: str) -> list[int]:
        return qf.sql(query, reviews=REVIEWS, aspects=ASPECTS).collect()["id"].sort().to_list()

    on = f"r.movie = a.movie AND {condition}"
    without = rows(f"SELECT r.id FROM reviews r LEFT JOIN aspects a ON {on} WHERE a.movie IS NULL")
    assert without == rows(f"SELECT r.id FROM reviews r LEFT JOIN aspects a ON {on} WHERE a.aspect IS NULL")
    right = f"SELECT r.id, a.movie AS m FROM aspects a RIGHT JOIN reviews r ON {on}"
    assert without == rows(f"SELECT id FROM ({right}) AS x WHERE m IS NULL")
    assert 0 < len(without) < REVIEWS.height
