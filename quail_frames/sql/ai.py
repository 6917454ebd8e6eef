"""The arguments of AI functions: prompts, labels and options, as written in either dialect."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from sqlglot import exp

from quail_frames.errors import CallError
from quail_frames.lazy.calls import nearest
from quail_frames.lazy.prompts import parse_template
from quail_frames.sql.dialects import AiFunction
from quail_frames.sql.problems import fail

SPELLINGS = {
    "IF": "AI_FILTER(PROMPT('... {0} ...', column)) or AI.IF(('...', column))",
    "SCORE": "AI_SCORE(PROMPT('... {0} ...', column)) or AI.SCORE(('...', column))",
    "CLASSIFY": "AI_CLASSIFY(column, ['label', 'other label'])",
}
_POSITIONS = {"IF": ("prompt", "column"), "SCORE": ("prompt", "column"), "CLASSIFY": ("input", "categories")}
_COMMON = {"selectivity", "layout", "overflow"}
_OPTIONS = {"IF": _COMMON, "SCORE": _COMMON, "CLASSIFY": _COMMON | {"task_description", "probabilities", "scoring"}}
_IGNORED = {"connection_id"}  # names a cloud resource: nothing here needs one
_LABEL_KEYS = ("label", "description")


@dataclass(frozen=True)
class Prompt:
    """Text and input numbers in order, and the expressions that those numbers stand for."""

    pieces: tuple[str | int, ...]
    inputs: tuple[exp.Expr, ...]

    def template(self, placeholder: Callable[[int], str]) -> str:
        """The prompt in the template language of Python, with these placeholders."""
        return "".join(
            placeholder(piece) if isinstance(piece, int) else piece.replace("{", "{{").replace("}", "}}")
            for piece in self.pieces
        )


@dataclass(frozen=True)
class Call:
    """An AI function taken apart: what the Python function of its kind is called with."""

    kind: str
    prompt: Prompt
    options: dict[str, Any]
    labels: tuple[str, ...] = ()
    descriptions: tuple[str | None, ...] | None = None


@dataclass
class _Arguments:
    named: dict[str, exp.Expr] = field(default_factory=dict)
    options: dict[str, Any] = field(default_factory=dict)


def read_call(node: AiFunction) -> Call:
    """The call that the function stands for.

    Raises
    ------
    SqlError
        An argument is missing, unknown or not a constant where it has to be.
    """
    kind = node.this
    found = _arguments(node)
    first = _POSITIONS[kind][0]
    if first not in found.named:
        fail(node, f"{_name(kind)} has no {first}: write {SPELLINGS[kind]}")
    if kind == "CLASSIFY":
        if "categories" not in found.named:
            fail(node, f"{_name(kind)} has no labels: write {SPELLINGS[kind]}")
        labels, descriptions = _labels(found.named["categories"])
        return Call(kind, _document(found.named["input"]), found.options, labels, descriptions)
    return Call(kind, _question(found.named["prompt"], found.named.get("column"), kind), found.options)


def _name(kind: str) -> str:
    return {"IF": "AI_FILTER", "SCORE": "AI_SCORE", "CLASSIFY": "AI_CLASSIFY"}[kind]


def _arguments(node: AiFunction) -> _Arguments:
    found = _Arguments()
    positions = iter(_POSITIONS[node.this])
    for argument in node.expressions:
        if isinstance(argument, exp.Kwarg):
            _take(node.this, argument.this.name.lower(), argument.expression, argument, found)
        elif isinstance(argument, exp.Struct) and found.named:
            _take_options(node.this, argument, found)
        else:
            name = next(positions, None)
            if name is None:
                fail(argument, f"{_name(node.this)} has an argument too many: write {SPELLINGS[node.this]}")
            found.named[name] = argument
    return found


def _take(kind: str, name: str, value: exp.Expr, at: exp.Expr, found: _Arguments) -> None:
    known = _OPTIONS[kind]
    if name in _POSITIONS[kind]:
        found.named[name] = value
    elif name in ("options", "config", "config_object") and isinstance(value, exp.Struct):
        _take_options(kind, value, found)
    elif name in known:
        found.options[name] = _constant(value, f"option {name}")
    elif name == "output_mode" and _constant(value, name) == "single":
        pass
    elif name not in _IGNORED:
        fail(at, f"{_name(kind)} has no option {name!r}{nearest(name, sorted(known))}")


def _take_options(kind: str, options: exp.Struct, found: _Arguments) -> None:
    for pair in options.expressions:
        if not isinstance(pair, exp.PropertyEQ):
            fail(pair, f"an option of {_name(kind)} has no name: write {{'selectivity': 0.25}}")
        _take(kind, pair.this.name.lower(), pair.expression, pair, found)


def _constant(value: exp.Expr, what: str) -> Any:
    if isinstance(value, exp.Boolean):
        return bool(value.this)
    if isinstance(value, exp.Neg) and isinstance(value.this, exp.Literal) and not value.this.is_string:
        return -_constant(value.this, what)
    if not isinstance(value, exp.Literal):
        fail(value, f"{what} is not a constant: write its value here")
    return value.this if value.is_string else number(value)


def number(value: exp.Literal) -> int | float:
    """The value of a number as written."""
    return int(value.this) if value.this.isdecimal() else float(value.this)


# Prompts --------------------------------------------------------------------------------


def _question(prompt: exp.Expr, column: exp.Expr | None, kind: str) -> Prompt:
    if column is None:
        found = _composed(prompt) or _joined(_concatenated(prompt))
        if not found.inputs:
            fail(prompt, f"the prompt asks about no column: write {SPELLINGS[kind]}")
        return found
    if not (isinstance(prompt, exp.Literal) and prompt.is_string):
        fail(prompt, f"a prompt before a column is a text: write {SPELLINGS[kind]}")
    return Prompt((prompt.this,), (column,))


def _document(input: exp.Expr) -> Prompt:
    found = _composed(input) or Prompt((0,), (input,))
    if not found.inputs:
        fail(input, f"the classification reads no column: write {SPELLINGS['CLASSIFY']}")
    return found


def _composed(node: exp.Expr) -> Prompt | None:
    """A prompt written as `PROMPT(...)` or as BigQuery's `('text', column, ...)`."""
    if isinstance(node, exp.Anonymous) and node.name.upper() == "PROMPT":
        return _formatted(node)
    if isinstance(node, exp.Tuple | exp.Struct):
        return _joined(node.expressions)
    return None


def _formatted(node: exp.Anonymous) -> Prompt:
    text, *inputs = node.expressions or [exp.Null()]
    if not (isinstance(text, exp.Literal) and text.is_string):
        fail(node, "PROMPT starts with a text: write PROMPT('... {0} ...', column)")
    names = [f"argument {number}" for number in range(len(inputs))]
    try:
        template, found = parse_template(text.this, names)
    except CallError as error:
        fail(node, f"{error} (SQL spells it PROMPT('... {{0}} ...', column))")
    if len(found) > len(inputs):
        fail(
            node,
            f"PROMPT's text names {{{found[len(inputs)]}}}: write {{0}} for its first argument, "
            "{1} for the second, and {{ }} for braces",
        )
    pieces: list[str | int] = [piece if isinstance(piece, str) else piece.input for piece in template.pieces]
    return _distinct(pieces, inputs)


def _concatenated(node: exp.Expr) -> Sequence[exp.Expr]:
    """The parts of `'text' || column || ...` or `CONCAT('text', column, ...)`."""
    if isinstance(node, exp.Paren):
        return _concatenated(node.this)
    if isinstance(node, exp.DPipe):
        return [*_concatenated(node.this), *_concatenated(node.expression)]
    return node.expressions if isinstance(node, exp.Concat) else [node]


def _joined(parts: Sequence[exp.Expr]) -> Prompt:
    pieces: list[str | int] = []
    inputs: list[exp.Expr] = []
    for part in parts:
        if isinstance(part, exp.Literal) and part.is_string:
            if pieces and isinstance(pieces[-1], str):
                pieces[-1] += part.this
            else:
                pieces.append(part.this)
        else:
            pieces.append(len(inputs))
            inputs.append(part)
    return _distinct(pieces, inputs)


def _distinct(pieces: Sequence[str | int], inputs: Sequence[exp.Expr]) -> Prompt:
    """The prompt with equal inputs as one."""
    first = [next(i for i, other in enumerate(inputs) if other == each) for each in inputs]
    kept = sorted(set(first))
    numbered = tuple(kept.index(first[piece]) if isinstance(piece, int) else piece for piece in pieces)
    return Prompt(numbered, tuple(inputs[i] for i in kept))


# Labels ---------------------------------------------------------------------------------


def _labels(node: exp.Expr) -> tuple[tuple[str, ...], tuple[str | None, ...] | None]:
    if not isinstance(node, exp.Array):
        fail(node, f"labels are an array of constants: write {SPELLINGS['CLASSIFY']}")
    pairs = [_label(entry) for entry in node.expressions]
    described = any(description is not None for _, description in pairs)
    labels = tuple(label for label, _ in pairs)
    return labels, tuple(description for _, description in pairs) if described else None


def _label(entry: exp.Expr) -> tuple[str, str | None]:
    """A label and its description: 'text', ('text', 'description') or {'label': ..., 'description': ...}."""
    if not isinstance(entry, exp.Tuple | exp.Struct):
        return _constant(entry, "a label"), None
    values: dict[str, Any] = {}
    for position, part in enumerate(entry.expressions):
        named = isinstance(part, exp.PropertyEQ | exp.Alias)
        key = part.this.name if isinstance(part, exp.PropertyEQ) else part.alias if named else ""
        key = key.lower() if named else _LABEL_KEYS[position] if position < 2 else f"part {position + 1}"
        if key not in _LABEL_KEYS:
            fail(part, f"a label has no {key!r}{nearest(key, _LABEL_KEYS)}")
        value = part.expression if isinstance(part, exp.PropertyEQ) else part.this if named else part
        values[key] = _constant(value, f"the {key} of a label")
    if "label" not in values:
        fail(entry, "a label has no text: write ('label', 'description') or {'label': 'label', 'description': '...'}")
    return values["label"], values.get("description")
