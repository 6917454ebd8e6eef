"""decision_choice: one block of tokens for each label, side by side, and a head that reads every block's last state.

Blocks stand at equal positions and do not see each other, so the labels' order cannot matter.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from quail_frames.runtime.batch import BestColumn, Float32, Int64, ReadoutSpec, TokenTree
from quail_frames.runtime.readouts.true_false import Float64
from quail_frames.runtime.tokens.layouts import Encode
from quail_frames.runtime.tokens.ragged import Ragged


@dataclass(frozen=True, eq=False)
class DecisionChoiceReadout:
    """The last row of every option block, in label order, then the last row of the cue.

    After a prompt of P tokens, token t of every block has position P + t. The cue sees the prompt and all blocks; its
    token j has position P + longest block + j, whatever the order. Where a model's options were trained in sequence,
    the blocks are plain text instead, one after the other, and their order may matter.
    """

    spec: ReadoutSpec
    reads: tuple[int, ...]
    tails: Ragged
    tree: TokenTree | None
    depth: int
    temperature: float = 1.0
    bias: float = 0.0

    @staticmethod
    def of(
        encode: Encode,
        blocks: Sequence[str],
        cue: str,
        *,
        masked: bool = True,
        temperature: float = 1.0,
        bias: float = 0.0,
        probabilities: bool = True,
    ) -> DecisionChoiceReadout:
        """The read-out of these option blocks, each tokenised alone.

        Where nobody wants `probabilities` or margins, a device may give the best option alone.

        >>> def letters(text):
        ...     return np.frombuffer(text.encode(), dtype=np.uint8).astype(np.int32)
        >>> readout = DecisionChoiceReadout.of(letters, ["ab", "c"], "?!")
        >>> readout.reads, readout.tree.depths.tolist(), readout.depth
        ((-4, -3, -1), [0, 1, 0, 2, 3], 4)
        """
        lists = [encode(block) for block in blocks]
        ending = encode(cue)
        ends = np.cumsum([len(tokens) for tokens in lists])
        reads = (*(ends - 1 - ends[-1] - len(ending)).tolist(), -1)
        tree = TokenTree(_chains([len(tokens) for tokens in lists]), closing=len(ending)) if masked else None
        depth = int(ends[-1]) + len(ending) if tree is None else int(tree.depths[-1]) + 1
        tails = Ragged.of([np.concatenate([*lists, ending])])
        answer = BestColumn() if not probabilities and len(blocks) > 1 else None
        spec = ReadoutSpec(np.zeros(0, dtype=np.int32), options=len(blocks), answer=answer)
        return DecisionChoiceReadout(spec, reads, tails, tree, depth, temperature, bias)

    def margins(self, logits: Float32) -> Float64:
        """Calibrated log-odds of TRUE, [A], where the options are FALSE and TRUE."""
        return (logits[:, 1].astype(np.float64) - logits[:, 0]) / self.temperature + self.bias

    def best(self, logits: Float32) -> Int64:
        """As `OneOfMany.best`."""
        return logits[:, 0].astype(np.int64) if self.spec.answered(logits) else logits.argmax(axis=1)

    def probabilities(self, logits: Float32) -> Float64:
        """Softmax of the options' logits over the temperature, [A, labels]."""
        scaled = logits.astype(np.float64) / self.temperature
        weights = np.exp(scaled - scaled.max(axis=1, keepdims=True))
        return weights / weights.sum(axis=1, keepdims=True)


def _chains(lengths: Sequence[int]) -> np.ndarray:
    """Parents of chains that stand side by side.

    >>> _chains([2, 1, 3]).tolist()
    [-1, 0, -1, -1, 3, 4]
    """
    parents = np.arange(-1, sum(lengths) - 1, dtype=np.int32)
    parents[np.cumsum([0, *lengths[:-1]])] = -1
    return parents
