"""The decision head: a logit for each option from the states at the end of its block and at the end of the prompt.

It reads states after the decoder's final norm, and computes in float32 whatever the decoder's dtype.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import gelu, linear

from quail_frames.errors import ModelError
from quail_frames.runtime.models.adapter_file import DECISION_HEAD as PREFIX
from quail_frames.runtime.models.weights import WeightSource

PARTS = ("query", "key", "mlp_in", "mlp_in_bias", "mlp_out", "mlp_out_bias")


@dataclass(frozen=True, eq=False)
class DecisionHead:
    """`logit(o) = (query f) . (key o) / sqrt(d) + mlp_out . gelu(mlp_in [f; o] + mlp_in_bias) + mlp_out_bias`.

    f is the final state, o an option's; gelu is the exact one (Hendrycks and Gimpel 2016, arXiv:1606.08415). All
    float32: query and key (d, hidden), mlp_in (d, 2 hidden), mlp_in_bias and mlp_out (d,), mlp_out_bias ().

    >>> head = DecisionHead.of({PREFIX + part: torch.ones(size) for part, size in sizes(2, 3).items()}, 3, "example")
    >>> head.logits(torch.ones(1, 3), torch.zeros(1, 2, 3)).tolist()
    [[8.999..., 8.999...]]
    """

    query: Tensor
    key: Tensor
    mlp_in: Tensor
    mlp_in_bias: Tensor
    mlp_out: Tensor
    mlp_out_bias: Tensor

    @staticmethod
    def of(tensors: Mapping[str, Tensor], hidden: int, where: str) -> DecisionHead:
        """From tensors named `decision_head.query` and so on; others are left alone.

        Raises
        ------
        ModelError
            A tensor is missing or its shape does not fit the model.
        """
        missing = [PREFIX + part for part in PARTS if PREFIX + part not in tensors]
        if missing:
            raise ModelError(f"{where} lacks the tensor {missing[0]!r} of a decision head. Write the file again.")
        width = tensors[PREFIX + "query"].shape[0]
        for part, size in sizes(width, hidden).items():
            found = tuple(tensors[PREFIX + part].shape)
            if found != size:
                raise ModelError(
                    f"The tensor {PREFIX + part!r} of {where} has the shape {found}; a decision head of width {width} "
                    f"on a model of width {hidden} needs {size}. It was made for another model."
                )
        return DecisionHead(*(tensors[PREFIX + part].to(torch.float32) for part in PARTS))

    @property
    def width(self) -> int:
        """d: rows of every matrix."""
        return self.query.shape[0]

    @torch.inference_mode()
    def logits(self, final: Tensor, options: Tensor) -> Tensor:
        """Logits of the options, float32.

        Parameters
        ----------
        final
            States at the end of the prompts, shape (A, hidden).
        options
            States at the end of each option's block, shape (A, options, hidden).

        Returns
        -------
        Tensor
            Shape (A, options).
        """
        final, options = final.to(torch.float32), options.to(torch.float32)
        matched = linear(options, self.key) @ linear(final, self.query).unsqueeze(2)
        of_final, of_option = self.mlp_in.split(final.shape[1], dim=1)
        inner = linear(final, of_final, self.mlp_in_bias).unsqueeze(1) + linear(options, of_option)
        return matched.squeeze(2) / math.sqrt(self.width) + gelu(inner) @ self.mlp_out + self.mlp_out_bias

    def to(self, device: torch.device | str) -> DecisionHead:
        """The head on another device."""
        return DecisionHead(*(getattr(self, part).to(device) for part in PARTS))


def head_of(source: WeightSource, hidden: int, where: str) -> DecisionHead | None:
    """The decision head among a source's tensors; None where it has none.

    Raises
    ------
    ModelError
        Only a part of a head is there, or it is of another model.
    """
    names = [name for name in source.names() if name.startswith(PREFIX)]
    return DecisionHead.of({name: source.read(name) for name in names}, hidden, where) if names else None


def sizes(width: int, hidden: int) -> dict[str, tuple[int, ...]]:
    """Shape of each part."""
    return {
        "query": (width, hidden),
        "key": (width, hidden),
        "mlp_in": (width, 2 * hidden),
        "mlp_in_bias": (width,),
        "mlp_out": (width,),
        "mlp_out_bias": (),
    }
