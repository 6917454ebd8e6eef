"""The template language."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quail_frames.errors import CallError
from quail_frames.lazy.prompts import column_placeholder, parse_template
from quail_frames.plan.template import Slot, Template


def test_a_placeholder_names_a_column() -> None:
    template, columns = parse_template("Is {review} about {topic}, {review}?")
    assert columns == ("review", "topic")
    assert template == Template(("Is ", Slot(0), " about ", Slot(1), ", ", Slot(0), "?"))


def test_quotes_allow_any_column_name() -> None:
    template, columns = parse_template(r'Is {"odd } \" name \\"} spam?')
    assert columns == ('odd } " name \\',)
    assert template.pieces == ("Is ", Slot(0), " spam?")


def test_positions_refer_to_explicit_columns() -> None:
    template, columns = parse_template("Is {1} in {0}, like {other}?", ["a", "b"])
    assert columns == ("a", "b", "other")
    assert template.pieces == ("Is ", Slot(1), " in ", Slot(0), ", like ", Slot(2), "?")


def test_a_quoted_number_is_a_column_name() -> None:
    assert parse_template('Is {"0"} spam?')[1] == ("0",)


def test_doubled_braces_are_braces() -> None:
    assert parse_template("Is {a} in {{x}}?")[0].pieces == ("Is ", Slot(0), " in {x}?")


def test_without_a_placeholder_the_one_column_is_the_document() -> None:
    assert parse_template("Is it spam?", ["body"]) == (Template(("Is it spam?",)), ("body",))


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("Is it spam?", [], "'Is it spam?' names no column"),
        ("Is it spam?", ["a", "b"], "no placeholder for its 2 columns"),
        ("Is {0} spam?", [], "{0} in template 'Is {0} spam?' stands for an explicit column"),
        ("Is {1} spam?", ["a"], "{1} in template 'Is {1} spam?' has no column: only column {0} is given"),
        ("Is {0} spam?", ["a", "b"], "column 'b' is given but template 'Is {0} spam?' has no placeholder"),
        ("Is {a spam?", [], "'{' at position 3 of template 'Is {a spam?'"),
        ("Is a} spam?", [], "'}' at position 4 of template 'Is a} spam?' closes nothing"),
        ("Is {} spam?", ["a"], "'{}' at position 3 of template 'Is {} spam?' names no column"),
        ('Is {"a": 1} in {b}?', [], "'{' at position 3"),
        ("  ", ["a"], "asks nothing"),
    ],
)
def test_an_error_names_the_template_and_the_place(text: str, columns: list[str], message: str) -> None:
    with pytest.raises(CallError) as caught:
        parse_template(text, columns)
    assert message in str(caught.value)


@given(st.lists(st.text(min_size=1), min_size=1, max_size=4, unique=True), st.lists(st.text(), min_size=5, max_size=5))
def test_any_text_and_any_column_names_survive_parsing(names: list[str], texts: list[str]) -> None:
    escaped = [text.replace("{", "{{").replace("}", "}}") for text in texts]
    source = "Q" + "".join(text + column_placeholder(name) for text, name in zip(escaped, names, strict=False))
    template, columns = parse_template(source)
    assert columns == tuple(names)
    markers = tuple(f"<{i}>" for i in range(len(names)))
    assert template.render(markers) == "Q" + "".join(t + m for t, m in zip(texts, markers, strict=False))
