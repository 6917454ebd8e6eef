"""A statement that cannot be planned gives one error that says where, what and what to write instead."""

from __future__ import annotations

import polars as pl
import pytest

import quail_frames as qf

TABLES = {
    "reviews": pl.DataFrame({"id": [1], "review": ["good"], "stars": [5], "day": ["2024-01-31"]}),
    "aspects": pl.DataFrame({"id": [1], "aspect": ["plot"]}),
}
PROMPT = "PROMPT('Is {0} good?', review)"

STATEMENTS: list[tuple[str, str]] = [
    # Not SQL, or no query
    ("", "one SELECT statement"),
    ("SELECT", "SELECT names no column"),
    ("SELECT id FROM", "Expected table name"),
    ("SELEC id FROM reviews", "line 1"),
    ("SELECT id FROM reviews WHERE", "line 1"),
    ("SELECT id FROM reviews WHERE (stars > 1", "Expecting )"),
    ("SELECT 'unclosed FROM reviews", "cannot be read as SQL"),
    ("SELECT id FROM reviews; SELECT id FROM aspects", "holds 2"),
    ("DELETE FROM reviews", "only queries"),
    ("INSERT INTO reviews SELECT * FROM reviews", "only queries"),
    ("CREATE TABLE t AS SELECT * FROM reviews", "only queries"),
    ("DROP TABLE reviews", "only queries"),
    # Names
    ("SELECT id FROM review", "did you mean 'reviews'"),
    ("SELECT revew FROM reviews", "line 1, column 8: column 'revew' is unknown; did you mean 'review'?"),
    ("SELECT x.id FROM reviews r", "no table 'x' stands in FROM"),
    ("SELECT r.stras FROM reviews r", "column 'stras' of table 'r' is unknown; did you mean 'stars'?"),
    ("SELECT id FROM reviews r JOIN aspects a ON r.id = a.id", "write r.id or a.id"),
    ("SELECT 1 FROM reviews JOIN reviews ON 1 = 1", "two tables are called 'reviews'"),
    ("SELECT id, stars AS id FROM reviews", "two columns of the result are called 'id'"),
    ('SELECT "ID" FROM reviews', "column 'ID' is unknown; did you mean 'id'?"),
    ("SELECT id FROM db.reviews", "tables have one name here"),
    ("SELECT * EXCLUDE (nothing) FROM reviews", "column 'nothing' of EXCLUDE"),
    ("SELECT id FROM reviews ORDER BY 2", "position 2 is not one of the 1 columns"),
    # Types
    ("SELECT id FROM reviews WHERE stars", "a condition is TRUE or FALSE, but this is Int64"),
    ("SELECT id FROM reviews WHERE review > 3", "String cannot be compared with Int"),
    ("SELECT review + 1 FROM reviews", "a number is wanted, but this is String"),
    ("SELECT UPPER(stars) FROM reviews", "a text is wanted, but this is Int64"),
    ("SELECT id FROM reviews WHERE id IN ('a', 'b')", "cannot be compared"),
    ("SELECT CAST(id AS GEOGRAPHY) FROM reviews", "CAST to GEOGRAPHY is not supported"),
    ("SELECT EXTRACT(YEAR FROM day) FROM reviews", "a date is wanted, but this is String: CAST it to DATE"),
    ("SELECT id FROM reviews WHERE CAST(day AS DATE) > 'soon'", "'soon' is no Date"),
    ("SELECT id FROM reviews r JOIN aspects a ON r.review = a.id", "line 1"),
    # Constructs
    ("SELECT LAG(stars) OVER (ORDER BY id) FROM reviews", "LAG OVER is not planned: there are ROW_NUMBER()"),
    ("SELECT RANK() OVER (PARTITION BY id) FROM reviews", "RANK ranks by an order"),
    ("SELECT ROW_NUMBER() FROM reviews", "write ROW_NUMBER() OVER (... ORDER BY ...)"),
    ("SELECT id FROM reviews WHERE SUM(stars) OVER () > 1", "stands in SELECT and QUALIFY only"),
    ("SELECT id FROM reviews ORDER BY RANK() OVER (ORDER BY id)", "stands in SELECT and QUALIFY only"),
    ("SELECT SUM(stars) OVER (ORDER BY id ROWS 2 PRECEDING) FROM reviews", "UNBOUNDED PRECEDING AND CURRENT ROW here"),
    ("SELECT COUNT(DISTINCT id) OVER (ORDER BY id) FROM reviews", "DISTINCT cannot run along ORDER BY"),
    ("SELECT MEDIAN(stars) OVER (ORDER BY id) FROM reviews", "run along the ORDER BY of a window"),
    ("SELECT SUM(stars), RANK() OVER (ORDER BY id) FROM reviews GROUP BY id", "stands beside GROUP BY"),
    ("SELECT id FROM reviews QUALIFY id", "a condition is TRUE or FALSE, but this is Int64"),
    ("SELECT id FROM reviews WHERE id = 1 OR id NOT IN (SELECT id FROM aspects)", "NOT IN (SELECT ...) stands only"),
    ("SELECT id FROM reviews WHERE id NOT IN (SELECT * FROM aspects)", "takes one column, this gives 2"),
    ("SELECT id FROM reviews WHERE id > ALL (SELECT id FROM aspects)", "comparisons with ALL are not planned"),
    ("SELECT id, (SELECT id FROM aspects) FROM reviews", "where it aggregates all its rows"),
    ("SELECT id FROM reviews WHERE stars > (SELECT MAX(a.id) FROM aspects a WHERE a.id = x.id)", "no table 'x'"),
    ("SELECT id FROM reviews GROUP BY id HAVING COUNT(*) > (SELECT MAX(id) FROM aspects)", "in SELECT and WHERE only"),
    ("SELECT id FROM reviews WHERE (id, stars) = 1", "a list of values stands only in VALUES"),
    ("SELECT * FROM (VALUES (1, 2), (3)) AS t", "a row of VALUES has 1 columns, the first has 2"),
    ("SELECT * FROM (VALUES (1), ('a')) AS t", "in a row of VALUES above Int32: CAST one of them"),
    ("SELECT * FROM (VALUES (NULL), (1), ('a')) AS t", "in a row of VALUES above Int32: CAST one of them"),
    ("SELECT id FROM reviews WHERE NULL NOT IN (SELECT id FROM reviews)", "reads no column of FROM"),
    ("SELECT id FROM reviews WHERE 5 IN (SELECT id FROM reviews)", "reads no column of FROM"),
    ("SELECT SUM(2) OVER (ORDER BY id) FROM reviews", "an aggregate of a constant reads no column"),
    ("SELECT * FROM (VALUES (id)) AS t", "line 1"),
    (
        "SELECT id FROM reviews r FULL JOIN aspects a USING (id) JOIN aspects b USING (id)",
        "write ON a.x = b.x, and COALESCE(a.x, b.x) AS x",
    ),
    ("SELECT id FROM reviews WHERE id = 1 OR EXISTS (SELECT 1 FROM aspects)", "EXISTS stands only in WHERE"),
    ("SELECT id FROM reviews WHERE EXISTS (SELECT 1 FROM aspects)", "no condition of the form a.x = b.x"),
    ("SELECT id FROM reviews INTERSECT SELECT id FROM aspects", "INTERSECT is not planned"),
    ("SELECT id, stars FROM reviews UNION ALL SELECT id FROM aspects", "UNION joins 2 columns with 1"),
    ("SELECT id FROM reviews r NATURAL JOIN aspects a", "NATURAL and ASOF joins are not planned"),
    ("SELECT r.id FROM reviews r LEFT JOIN aspects a ON r.id > a.id", "LEFT JOIN takes conditions of the form"),
    ("SELECT id FROM reviews TABLESAMPLE (10)", "TABLESAMPLE is not planned"),
    ("SELECT id FROM reviews LIMIT 1 + 1", "LIMIT takes a whole number"),
    ("SELECT id FROM reviews LIMIT 99999999999999999999", "LIMIT takes a whole number"),
    ("WITH a AS (SELECT 1 AS x), a AS (SELECT 2 AS x) SELECT x FROM a", "two queries of WITH are called 'a'"),
    (f"SELECT AI_FILTER({PROMPT}) OVER () FROM reviews", "an AI function is asked row by row"),
    ("SELECT COUNT(*) + (SELECT MAX(id) FROM aspects) FROM reviews", "a subquery stands beside an aggregate"),
    (f"SELECT id FROM reviews WHERE id NOT IN (SELECT id FROM reviews WHERE AI_FILTER({PROMPT}))", "NOT EXISTS"),
    ("SELECT stars, COUNT(*) FROM reviews", "neither in GROUP BY nor inside an aggregate"),
    ("SELECT id FROM reviews WHERE COUNT(*) > 1", "an aggregate cannot stand in WHERE"),
    ("SELECT MAX(SUM(stars)) FROM reviews", "an aggregate stands inside an aggregate"),
    ("SELECT stars, COUNT(*) FROM reviews GROUP BY ROLLUP (stars)", "ROLLUP is not planned"),
    ("SELECT FLOR(stars) FROM reviews", "function FLOR is unknown; the nearest is FLOOR(x)"),
    ("SELECT id FROM reviews WHERE stars = ?", "parameters are not bound here"),
    # AI functions
    ("SELECT AI_COMPLETE('model', review) FROM reviews", "the AI functions are AI_FILTER"),
    ("SELECT AI_FILTER() FROM reviews", "AI_FILTER has no prompt"),
    ("SELECT AI_FILTER('Is it good?') FROM reviews", "the prompt asks about no column"),
    ("SELECT AI_FILTER(PROMPT('Is {1} good?', review)) FROM reviews", "{1}"),
    ("SELECT AI_FILTER(PROMPT('Is {review} good?')) FROM reviews", "write {0} for its first argument"),
    (f"SELECT AI_FILTER({PROMPT}, {{'selectivty': 0.5}}) FROM reviews", "did you mean 'selectivity'?"),
    (f"SELECT AI_FILTER({PROMPT}, {{'selectivity': 2}}) FROM reviews", "a number from 0 to 1"),
    (f"SELECT AI_FILTER({PROMPT}, {{'selectivity': stars}}) FROM reviews", "option selectivity is not a constant"),
    ("SELECT AI_CLASSIFY(review) FROM reviews", "AI_CLASSIFY has no labels"),
    ("SELECT AI_CLASSIFY(review, review) FROM reviews", "labels are an array of constants"),
    ("SELECT AI_CLASSIFY(review, ['plot']) FROM reviews", "2 to 255 labels"),
    ("SELECT AI_CLASSIFY(review, ['plot', 'Plot']) FROM reviews", "the same, ignoring case"),
]


@pytest.mark.parametrize(("text", "said"), STATEMENTS, ids=[text for text, _ in STATEMENTS])
def test_a_statement_that_cannot_be_planned_is_one_clear_error(text: str, said: str) -> None:
    with pytest.raises(qf.SqlError) as raised:
        qf.sql(text, **TABLES)
    message = str(raised.value)
    assert said in message
    assert len(raised.value.problems) == 1
    assert message.startswith("line ")
    assert "Traceback" not in message and "Token" not in message and len(message) < 400


def test_one_error_lists_every_construct_with_its_place() -> None:
    text = """SELECT FOO(id), ARRAY_AGG(stars)
FROM reviews TABLESAMPLE (10)
WHERE id IN (SELECT id FROM aspects INTERSECT SELECT 1) AND AI_FILTER('Is it good?')
ORDER BY RANK() OVER (ORDER BY id)"""
    with pytest.raises(qf.SqlError) as raised:
        qf.sql(text, **TABLES)
    assert [(line, column) for line, column, _ in raised.value.problems] == [
        (1, 8),
        (1, 17),
        (2, 27),
        (3, 21),
        (3, 71),
        (4, 10),
    ]
    assert str(raised.value).startswith("this query has 6 problems\n  line 1, column 8: function FOO is unknown")


def test_an_unknown_dialect_names_the_known_ones() -> None:
    with pytest.raises(ValueError, match="it is 'snowflake' or 'bigquery'"):
        qf.sql("SELECT 1", dialect="postgres")  # type: ignore[arg-type]
