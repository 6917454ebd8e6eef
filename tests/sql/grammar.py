"""Random relational queries over two small tables, for comparison with another engine.

A query that ends in ORDER BY orders by every column, so its rows have one order only.
"""

from __future__ import annotations

import datetime as dt
import random
from dataclasses import dataclass

import polars as pl

TABLES = {
    "orders": pl.DataFrame(
        {
            "id": [1, 2, 3, 4, 5, 6, 7, 8, 8],
            "city": ["Oslo", "rome", None, "Oslo", "Lima", "", "rome", "O_%o", "O_%o"],
            "qty": [3, None, 0, -4, 3, 7, 7, 2, 2],
            "price": [1.5, 2.25, -3.75, None, 0.0, 10.5, 2.25, 1.5, 1.5],
            "day": [
                dt.date(2024, 1, 31),
                dt.date(2024, 3, 1),
                None,
                *[dt.date(2023, 12, month) for month in range(1, 7)],
            ],
            "paid": [True, False, None, True, False, True, None, True, True],
        },
        schema_overrides={"qty": pl.Int32},
    ),
    "notes": pl.DataFrame(
        {
            "id": [1, 1, 2, 5, None, 9, 8],
            "city": ["Oslo", "Lima", "rome", None, "Oslo", "Bonn", "O_%o"],
            "text": ["fine; ok", "it's 'so'", None, "a%b", "fine", " pad ", "x"],
            "stars": [5, 1, 2, None, 4, 3, 3],
        }
    ),
}
NUMBERS = {"orders": ("id", "qty"), "notes": ("id", "stars")}
TEXTS = {"orders": ("city",), "notes": ("city", "text")}


@dataclass
class Row:
    """What may be named: table alias and table; by its name alone where that is enough."""

    aliases: list[tuple[str, str]]
    bare: bool = True


class Generator:
    """Writes queries of one dialect from a seed."""

    def __init__(self, dialect: str, seed: int) -> None:
        self.dialect = dialect
        self.random = random.Random(f"{dialect} {seed}")

    def query(self) -> tuple[str, bool]:
        """The text, and whether its rows have an order."""
        shape = self.random.choice(
            [
                self._plain,
                self._plain,
                self._joined,
                self._grouped,
                self._grouped,
                self._nested,
                self._union,
                self._tested,
                self._tested,
                self._windowed,
                self._measured,
            ]
        )
        text, width = shape()
        if self.random.random() < 0.5:
            keys = ", ".join(f"{position}{self._direction()}" for position in self._shuffled(range(1, width + 1)))
            limit = f" LIMIT {self.random.randint(0, 6)}" if self.random.random() < 0.6 else ""
            offset = f" OFFSET {self.random.randint(0, 3)}" if limit and self.random.random() < 0.5 else ""
            return f"{text} ORDER BY {keys}{limit}{offset}", True
        return text, False

    # Shapes -------------------------------------------------------------------------------

    def _plain(self) -> tuple[str, int]:
        row = Row([self._choice([("orders", "orders"), ("n", "notes")])])
        distinct = "DISTINCT " if self.random.random() < 0.2 else ""
        items, width = self._items(row)
        return f"SELECT {distinct}{items} FROM {self._from(row)}{self._where(row)}", width

    def _joined(self) -> tuple[str, int]:
        kind = self._choice(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN", "CROSS", "INNER JOIN", "USING", "self"])
        row = Row([("a", "orders"), ("b", "orders" if kind == "self" else "notes")])
        items, width = self._items(row)
        first, second = "orders AS a", f"{row.aliases[1][1]} b"
        key = self._choice(["a.id = b.id", "a.city = b.city", "a.id = b.id AND b.city = a.city"])
        if kind == "CROSS":
            source = f"{first}, {second}" if self.random.random() < 0.5 else f"{first} CROSS JOIN {second}"
            extra = f" AND {key}" if self.random.random() < 0.5 else ""
            return f"SELECT {items} FROM {source} WHERE {self._condition(row)}{extra}", width
        if kind == "USING":
            side = self._choice(["", "LEFT ", "RIGHT ", "FULL "])
            where = (
                f" WHERE {self._choice(['id > 1', 'id IS NULL', 'a.id IS NULL', 'b.id < 6'])}" if self._coin() else ""
            )
            return f"SELECT {items}, id AS c{width + 1} FROM {first} {side}JOIN {second} USING (id){where}", width + 1
        residual = ""
        if kind in ("JOIN", "INNER JOIN", "self") and self.random.random() < 0.5:
            residual = f" AND {self._condition(row)}"
        elif kind == "LEFT JOIN" and self.random.random() < 0.5:
            residual = f" AND {self._condition(Row([row.aliases[1]], bare=False))}"
        word = "JOIN" if kind == "self" else kind
        return f"SELECT {items} FROM {first} {word} {second} ON {key}{residual}{self._where(row)}", width

    def _grouped(self) -> tuple[str, int]:
        row = Row([("o", "orders")])
        keys = self._shuffled([self._text(row, 1), self._number(row, 1), "o.paid"])[: self.random.randint(0, 2)]
        aggregates = [self._aggregate(row) for _ in range(self.random.randint(1, 3))]
        items = ", ".join(f"{each} AS c{number}" for number, each in enumerate([*keys, *aggregates], start=1))
        by = (
            ""
            if not keys
            else " GROUP BY "
            + ", ".join(str(number) if self.random.random() < 0.3 else key for number, key in enumerate(keys, start=1))
        )
        having = (
            f" HAVING {self._aggregate(row, numeric=True)} > {self.random.randint(0, 3)}"
            if self._coin() and keys
            else ""
        )
        return f"SELECT {items} FROM {self._from(row)}{self._where(row)}{by}{having}", len(keys) + len(aggregates)

    def _nested(self) -> tuple[str, int]:
        row = Row([("s", "orders")])
        where = self._where(Row([("orders", "orders")]))
        inner = f"SELECT id, city, qty, price, day, paid FROM orders{where}"
        items, width = self._items(row)
        if self._coin():
            return f"WITH s AS ({inner}) SELECT {items} FROM s{self._where(row)}", width
        return f"SELECT {items} FROM ({inner}) AS s{self._where(row)}", width

    def _union(self) -> tuple[str, int]:
        parts = []
        for alias, table in (("o", "orders"), ("n", "notes")):
            row = Row([(alias, table)])
            parts.append(
                f"SELECT {self._number(row)} AS c1, {self._text(row)} AS c2 FROM {table} AS {alias}{self._where(row)}"
            )
        return f" UNION {self._choice(['ALL', 'DISTINCT' if self.dialect == 'bigquery' else ''])} ".join(parts), 2

    def _tested(self) -> tuple[str, int]:
        row, inner = Row([("a", "orders")]), Row([("b", "notes")])
        items, width = self._items(row)
        key = self._choice(["a.id = b.id", "b.city = a.city", "a.city = b.city AND a.id = b.id"])
        extra = f" AND {self._condition(inner)}" if self._coin() else ""
        test = self._choice(
            [
                f"EXISTS (SELECT 1 FROM notes b WHERE {key}{extra})",
                f"NOT EXISTS (SELECT * FROM notes b WHERE {key}{extra})",
                f"a.id IN (SELECT b.id FROM notes b WHERE {self._condition(inner)})",
                f"a.id NOT IN (SELECT b.id FROM notes b WHERE {self._condition(inner)})",
                f"a.city NOT IN (SELECT b.city FROM notes b WHERE b.city <> '' AND {self._condition(inner)})",
            ]
        )
        return f"SELECT {items} FROM orders a WHERE {self._condition(row)} AND {test}", width

    def _windowed(self) -> tuple[str, int]:
        row = Row([("o", "orders")])
        items, width = self._items(row)
        windows = [self._window(row) for _ in range(self.random.randint(1, 2))]
        named = "".join(f", {each} AS c{width + number}" for number, each in enumerate(windows, start=1))
        text = f"SELECT {items}{named} FROM {self._from(row)}{self._where(row)}"
        if self._coin():
            kept = f"c{width + 1}" if self._coin() else self._window(row)
            text += f" QUALIFY {kept} {self._choice(['=', '<', '>='])} {self.random.randint(0, 4)}"
        return text, width + len(windows)

    def _window(self, row: Row) -> str:
        parts = self._shuffled(["o.city", "o.paid", self._number(row, 1)])[: self.random.randint(0, 2)]
        by = f"PARTITION BY {', '.join(parts)} " if parts else ""
        keys = self._shuffled([self._number(row, 1), "o.price", self._text(row, 0)])[: self.random.randint(1, 2)]
        order = "ORDER BY " + ", ".join(f"{key}{self._direction()}" for key in keys)
        number = self._number(row, 1)
        aggregate = self._choice([f"{name}({number})" for name in ("SUM", "COUNT", "MIN", "MAX", "AVG")] + ["COUNT(*)"])
        options = [f"ROW_NUMBER() OVER ({by}{order}, o.day, o.id)", f"RANK() OVER ({by}{order})"]
        options += [f"DENSE_RANK() OVER ({by}{order})", f"{aggregate} OVER ({by}{order})", f"{aggregate} OVER ({by})"]
        rows = "ROWS BETWEEN UNBOUNDED PRECEDING AND CURRENT ROW"
        options += [f"{aggregate} OVER ({by}{order}, o.day, o.id {rows})"]
        return self._choice(options)

    def _measured(self) -> tuple[str, int]:
        row, inner = Row([("a", "orders")]), Row([("o", "orders")])
        value = f"(SELECT {self._aggregate(inner, numeric=True)} FROM orders AS o{self._where(inner)})"
        items, width = self._items(row)
        if self._coin():
            return f"SELECT {items}, {value} AS c{width + 1} FROM orders a{self._where(row)}", width + 1
        return f"SELECT {items} FROM orders a WHERE {self._condition(row)} AND {self._number(row)} < {value}", width

    # Clauses ------------------------------------------------------------------------------

    def _from(self, row: Row) -> str:
        ((alias, table),) = row.aliases
        return table if alias == table else f"{table} AS {alias}"

    def _where(self, row: Row) -> str:
        return f" WHERE {self._condition(row)}" if self.random.random() < 0.7 else ""

    def _items(self, row: Row) -> tuple[str, int]:
        made = [self._choice([self._number, self._text, self._condition, self._fraction])(row) for _ in range(3)]
        made = made[: self.random.randint(1, 3)]
        return ", ".join(f"{item} AS c{number}" for number, item in enumerate(made, start=1)), len(made)

    def _aggregate(self, row: Row, numeric: bool = False) -> str:
        number = self._number(row, 1)
        options = ["COUNT(*)", f"COUNT({number})", f"SUM({number})", f"COUNT(DISTINCT {self._text(row, 1)})"]
        options += [f"MIN({number})", f"MAX({number})", f"AVG({number})", f"SUM({number}) + COUNT(*)"]
        if not numeric:
            options += [f"MAX({self._text(row, 1)})", "MIN(o.day)"]
            options += [
                f"{'COUNTIF' if self.dialect == 'bigquery' else 'COUNT_IF'}(({self._condition(row, 1)}) IS TRUE)"
            ]
        return self._choice(options)

    # Expressions --------------------------------------------------------------------------

    def _column(self, row: Row, names: dict[str, tuple[str, ...]]) -> str:
        alias, table = self._choice(row.aliases)
        name = self._choice(list(names[table]))
        if row.bare and len(row.aliases) == 1 and self._coin():
            return name.upper() if self.random.random() < 0.3 else name
        return f"{alias}.{name}"

    def _number(self, row: Row, depth: int = 2) -> str:
        column = self._column(row, NUMBERS)
        if depth == 0 or self._coin():
            return column
        a, b = self._number(row, depth - 1), self._number(row, depth - 1)
        text = self._text(row, depth - 1)
        options = [
            f"({a} + {b})",
            f"({a} - {b})",
            f"{a} * 2",
            f"-({a})",
            f"ABS({a})",
            f"MOD({a}, 3)",
            f"COALESCE({a}, 0)",
        ]
        options += [
            f"CASE WHEN {self._condition(row, depth - 1)} THEN {a} ELSE {b} END",
            f"NULLIF({a}, 2)",
            f"SIGN({a})",
        ]
        options += [f"CHAR_LENGTH({text})", f"CASE {a} WHEN 3 THEN 1 WHEN 7 THEN 2 END", f"GREATEST({a}, {b})"]
        options += [f"CAST({a} AS {'INT64' if self.dialect == 'bigquery' else 'INT'})", f"LEAST({a}, 2)"]
        if self.dialect == "bigquery":
            options += [f"DIV({a}, 2)", f"IF({self._condition(row, depth - 1)}, {a}, 0)"]
        else:
            options += [f"IFF({self._condition(row, depth - 1)}, {a}, 0)", f"{a} % 4"]
        return self._choice(options)

    def _fraction(self, row: Row) -> str:
        number = self._number(row, 1)
        options = [f"{number} / 2", f"{number} / NULLIF({self._number(row, 1)}, 0)", f"ROUND({number} / 3, 2)"]
        if row.aliases[0][1] == "orders":
            price = f"{row.aliases[0][0]}.price"
            options += [price, f"{price} * {number}", f"FLOOR({price})", f"CEIL({price})", f"ROUND({price}, 1)"]
        return self._choice(options)

    def _text(self, row: Row, depth: int = 2) -> str:
        column = self._column(row, TEXTS)
        if depth == 0 or self._coin():
            return column
        a, b = self._text(row, depth - 1), self._text(row, depth - 1)
        options = [f"UPPER({a})", f"LOWER({a})", f"({a} || '-' || {b})", f"CONCAT({a}, '!')", f"SUBSTR({a}, 2, 2)"]
        options += [
            f"REPLACE({a}, 'o', '0')",
            f"TRIM({a})",
            f"COALESCE({a}, 'none')",
            f"LEFT({a}, 2)",
            f"RIGHT({a}, 1)",
        ]
        options += [
            f"CASE WHEN {self._condition(row, depth - 1)} THEN {a} ELSE 'no; ''x''' END"
            if self.dialect != "bigquery"
            else f"CASE WHEN {self._condition(row, depth - 1)} THEN {a} ELSE 'no; x' END",
            f"NULLIF({a}, '')",
        ]
        return self._choice(options)

    def _condition(self, row: Row, depth: int = 2) -> str:
        number, text = self._number(row, min(depth, 1)), self._text(row, min(depth, 1))
        operator = self._choice(["=", "<>", "<", "<=", ">", ">="])
        options = [f"{number} {operator} {self._number(row, 0)}", f"{number} {operator} {self.random.randint(-4, 8)}"]
        options += [
            f"{text} {operator} 'Oslo'",
            f"{number} BETWEEN 0 AND 4",
            f"{text} LIKE '%o%'",
            f"{text} LIKE 'O_%'",
        ]
        options += [f"{text} IS NULL", f"{number} IS NOT NULL", f"{number} IN (1, 3, 7)", f"{text} IN ('Oslo', 'rome')"]
        options += [
            f"{number} NOT IN (1, 3)",
            f"{number} IN (1, NULL)",
            f"{text} NOT LIKE 'r%'",
            f"{text} NOT IN ('rome')",
        ]
        if row.aliases[0][1] == "orders":
            alias = row.aliases[0][0]
            options += [f"{alias}.paid", f"NOT {alias}.paid", f"{alias}.paid IS TRUE", f"{alias}.day > '2023-12-03'"]
            options += [f"{alias}.day >= DATE '2024-01-01'", f"EXTRACT(MONTH FROM {alias}.day) = 12"]
        if depth and self._coin():
            a, b = self._condition(row, depth - 1), self._condition(row, depth - 1)
            options = [f"({a} AND {b})", f"({a} OR {b})", f"NOT ({a})", f"({a} OR NOT {b})"]
        return self._choice(options)

    # Chance -------------------------------------------------------------------------------

    def _choice(self, options: list) -> object:  # type: ignore[type-arg]
        return self.random.choice(options)

    def _coin(self) -> bool:
        return self.random.random() < 0.5

    def _shuffled(self, items: object) -> list:  # type: ignore[type-arg]
        found = list(items)  # type: ignore[call-overload]
        self.random.shuffle(found)
        return found

    def _direction(self) -> str:
        return self.random.choice(["", " ASC", " DESC", " DESC NULLS LAST", " NULLS FIRST"])
