"""The engines that queries run on, by device."""

from __future__ import annotations

from dataclasses import dataclass, field

from benchmarks.prompts import tokenizer_of
from quail_frames.cost.devices import ORDINARY_CPU
from quail_frames.cost.shapes import SHAPES
from quail_frames.runtime.compiled import ModelTraits, Tokenizer
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.loading import reads_of_a_token
from quail_frames.runtime.tokens.oracle_tokenizer import OracleTokenizer
from quail_frames.runtime.tokens.ragged import Int32, Ragged

MODEL = "smollm2-135m"
CONTEXT = {"slice": 1024, "tiny": 1500}
"""Longest prompt of a small size, so that some of its texts are too long as well; full size: the model's own."""
NULL_CONTEXT = 8192
FEW_PASS = -4.5
"""Bias of the null device's log-odds: about one in ten answers is TRUE."""


@dataclass(eq=False)
class Remembering:
    """A tokenizer that encodes each text once, so that a run of many queries does not time it again and again."""

    tokenizer: Tokenizer
    known: dict[str, Int32] = field(default_factory=dict)

    @property
    def bos_id(self) -> int | None:
        """Of the tokenizer."""
        return self.tokenizer.bos_id

    def encode(self, texts: list[str]) -> Ragged:
        """Token ids of each text."""
        new = list(dict.fromkeys(text for text in texts if text not in self.known))
        self.known |= zip(new, self.tokenizer.encode(new).lists(), strict=True)
        return Ragged.of(self.known[text] for text in texts)

    def decode(self, ids: Int32) -> str:
        """The text of these tokens."""
        return self.tokenizer.decode(ids)


def open_engine(device: str, size: str, model: str = MODEL, dtype: str = "auto") -> Engine:
    """An engine for a size of tables.

    `null` answers from a hash of each whole prompt, with the model's own tokenizer: it computes no model, and says
    which rows any correct plan gives. Each text is tokenised once in a run. `oracle` is the same with a tokenizer that
    needs no download.
    """
    if device in ("null", "oracle"):
        engine = Engine("oracle", max_length=CONTEXT.get(size, NULL_CONTEXT))
        engine.tokenizer = OracleTokenizer() if device == "oracle" else Remembering(tokenizer_of(model))
        engine.memory.share_from = 1  # this and the next as the model on a CPU
        engine.memory.reads_of_a_token = reads_of_a_token(SHAPES[MODEL].in_dtype("fp32"), ORDINARY_CPU)
        engine.traits = ModelTraits(bias=FEW_PASS if device == "null" else 0.0)
        return engine
    return Engine(model, device=device, dtype=dtype, max_length=CONTEXT.get(size))  # type: ignore[arg-type]
