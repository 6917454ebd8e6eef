"""A parsed prompt template: literal text and references to the call's input columns."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Slot:
    """A place in a template that holds the value of the call's input column number `input`."""

    input: int


@dataclass(frozen=True, slots=True)
class Template:
    """Literal text and slots, in order.

    A template without a slot is a question about the call's one explicit column.
    """

    pieces: tuple[str | Slot, ...]

    @property
    def inputs(self) -> tuple[int, ...]:
        """Input numbers in order of first use."""
        return tuple(dict.fromkeys(piece.input for piece in self.pieces if isinstance(piece, Slot)))

    def render(self, markers: tuple[str, ...]) -> str:
        """The text with `markers[i]` standing for input i.

        >>> Template(("Is ", Slot(0), " spam?")).render(("the document",))
        'Is the document spam?'
        """
        return "".join(markers[piece.input] if isinstance(piece, Slot) else piece for piece in self.pieces)
