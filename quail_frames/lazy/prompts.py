"""The template language of prompts: text with `{column}` placeholders.

`{name}` and `{"odd name"}` name a column, `{0}` the explicit column of that position, `{{`
and `}}` stand for braces. Values are never parsed: only what the query's author wrote is.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from quail_frames.errors import CallError
from quail_frames.plan.template import Slot, Template

_TOKEN = re.compile(
    r"""
    (?P<text>[^{}]+)
  | (?P<open>\{\{)
  | (?P<close>\}\})
  | \{"(?P<quoted>(?:[^"\\]|\\.)*)"\}
  | \{(?P<name>[^{}"]+)\}
    """,
    re.VERBOSE | re.DOTALL,
)


def parse_template(text: str, columns: Sequence[str] = ()) -> tuple[Template, tuple[str, ...]]:
    """The template and its columns: the explicit ones first, then the others in order of first use.

    Parameters
    ----------
    text
        The prompt as its author wrote it.
    columns
        Explicit columns; `{0}` is the first of them. A template without a placeholder is
        a question about the one explicit column.

    Raises
    ------
    CallError
        A brace does not fit, a position has no column, or the template names no column.

    Examples
    --------
    >>> template, columns = parse_template("Is {review} about {topic}?")
    >>> template.render(("DOCUMENT 0", "DOCUMENT 1")), columns
    ('Is DOCUMENT 0 about DOCUMENT 1?', ('review', 'topic'))
    >>> parse_template("Is it spam?", ["body"])
    (Template(pieces=('Is it spam?',)), ('body',))
    """
    if not isinstance(text, str):
        raise CallError(f"a prompt template is a str, not {type(text).__name__}: {text!r}")
    check_characters("the prompt template", text)
    names = list(columns)
    pieces: list[str | Slot] = []
    for piece in _pieces(text, names, explicit=len(columns)):
        if isinstance(piece, str) and pieces and isinstance(pieces[-1], str):
            pieces[-1] += piece
        else:
            pieces.append(piece)
    template = Template(tuple(pieces))
    _check_columns(text, template, tuple(names), explicit=len(columns))
    return template, tuple(names)


def check_characters(what: str, text: str) -> None:
    """Refuse half of a surrogate pair, which Python's str holds and no tokenizer reads."""
    half = re.search("[\ud800-\udfff]", text)
    if half:
        raise CallError(
            f"{what} holds a lone surrogate (U+{ord(half[0]):04X}) at position {half.start()}, which is no character: "
            "remove it, or decode its source with errors='replace'"
        )


def has_placeholder(text: str) -> bool:
    """Whether `text` is a template rather than a plain column name."""
    return "{" in text or "}" in text


def column_placeholder(name: str) -> str:
    """The placeholder that names this column, quoted where its name needs it.

    >>> column_placeholder("review"), column_placeholder('a "b"')
    ('{review}', '{"a \\\\"b\\\\""}')
    """
    if name and not name.isdecimal() and not re.search(r'[{}"]', name):
        return f"{{{name}}}"
    escaped = name.replace("\\", "\\\\").replace('"', '\\"')
    return f'{{"{escaped}"}}'


def _pieces(text: str, names: list[str], *, explicit: int) -> list[str | Slot]:
    pieces: list[str | Slot] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise CallError(_brace_message(text, position))
        pieces.append(_piece(text, match, names, explicit))
        position = match.end()
    return pieces


def _piece(text: str, match: re.Match[str], names: list[str], explicit: int) -> str | Slot:
    found, value = match.lastgroup, match.group(match.lastgroup or 0)
    if found == "text":
        return value
    if found == "open":
        return "{"
    if found == "close":
        return "}"
    if found == "name" and value.isdecimal():
        return Slot(_position(text, int(value), explicit))
    name = re.sub(r"\\(.)", r"\1", value, flags=re.DOTALL) if found == "quoted" else value
    if name not in names:
        names.append(name)
    return Slot(names.index(name))


def _position(text: str, position: int, explicit: int) -> int:
    if position < explicit:
        return position
    if explicit == 0:
        raise CallError(
            f"{{{position}}} in template {shown(text)} stands for an explicit column, but none is given: "
            f'pass the columns after the template, or write {{"{position}"}} for a column of that name'
        )
    given = "only column {0} is" if explicit == 1 else f"only columns {{0}} to {{{explicit - 1}}} are"
    raise CallError(f"{{{position}}} in template {shown(text)} has no column: {given} given")


def _check_columns(text: str, template: Template, names: tuple[str, ...], *, explicit: int) -> None:
    if not text.strip():
        raise CallError(f"template {text!r} asks nothing: write a question")
    if not names:
        raise CallError(
            f"template {shown(text)} names no column: write {{column}} where its text belongs, "
            "or pass the column after the template"
        )
    if not template.inputs and len(names) > 1:
        raise CallError(
            f"template {shown(text)} has no placeholder for its {len(names)} columns: "
            f"write {{0}} to {{{len(names) - 1}}} where they belong"
        )
    unused = [names[i] for i in range(explicit) if template.inputs and i not in template.inputs]
    if unused:
        raise CallError(f"column {unused[0]!r} is given but template {shown(text)} has no placeholder for it")


def _brace_message(text: str, position: int) -> str:
    where = f"at position {position} of template {shown(text)}"
    if text[position] == "}":
        return f"'}}' {where} closes nothing: write '}}}}' for a brace"
    if text.startswith("{}", position):
        return f"'{{}}' {where} names no column: write {{column}} or {{0}}, or '{{{{}}}}' for braces"
    return (
        f"'{{' {where} opens a placeholder that is not {{column}}, {{\"odd name\"}} or {{0}}: write '{{{{' for a brace"
    )


def shown(text: str, width: int = 60) -> str:
    """The text quoted for a message, shortened to about `width` characters."""
    return repr(text if len(text) <= width else text[: width - 1] + "…")
