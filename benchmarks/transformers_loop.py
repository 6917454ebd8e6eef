"""The baseline a user would write: transformers, whole prompts in padded batches sorted by length."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from transformers import AutoModelForCausalLM

from quail_frames.runtime.tokens.ragged import Int32, Ragged

Float32 = npt.NDArray[np.float32]
BATCH_TOKENS = 2048
"""Padded tokens in a batch."""


class TransformersLoop:
    """Logits of a few vocabulary rows at the last token of each prompt."""

    def __init__(self, folder: Path, dtype: str) -> None:
        self._model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), local_files_only=True)
        self._model.eval()

    @torch.inference_mode()
    def logits(self, prompts: Ragged, token_ids: Int32) -> Float32:
        """[prompts, token_ids]."""
        out = np.empty((len(prompts), len(token_ids)), dtype=np.float32)
        order = np.argsort(-prompts.lengths, kind="stable")
        start = 0
        while start < len(order):
            longest = int(prompts.lengths[order[start]])
            chosen = order[start : start + max(BATCH_TOKENS // longest, 1)]
            out[chosen] = self._batch(prompts.take(chosen), longest)[:, torch.from_numpy(token_ids).long()].numpy()
            start += len(chosen)
        return out

    def _batch(self, prompts: Ragged, longest: int) -> torch.Tensor:
        """Padded on the left, so that every prompt's last token is in the last column."""
        real = np.arange(longest)[None, :] >= longest - prompts.lengths[:, None]
        ids = np.zeros(real.shape, dtype=np.int64)
        ids[real] = prompts.values
        mask = torch.from_numpy(real.astype(np.int64))
        positions = (mask.cumsum(dim=1) - 1).clamp_min(0)
        output = self._model(
            input_ids=torch.from_numpy(ids),
            attention_mask=mask,
            position_ids=positions,
            logits_to_keep=1,
            use_cache=False,
        )
        return output.logits[:, -1].float()
