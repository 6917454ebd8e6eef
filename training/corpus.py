"""Rows of the training sets, split into those that are trained on and those that calibration is fitted on."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import polars as pl

FOLDER = Path("../shared/training")
EVERY = 20
"""One text in so many is held out of training, and one intent in `INTENTS_EVERY`."""
INTENTS_EVERY = 14


@dataclass(frozen=True)
class Row:
    """One labelled text."""

    id: str
    text: str
    text2: str | None
    question: str | None
    label: str
    extra: dict[str, Any]


def bucket(text: str, buckets: int) -> int:
    """A number below `buckets` that depends on the text alone."""
    return int.from_bytes(hashlib.blake2b(text.encode(), digest_size=8).digest(), "big") % buckets


def held_out_intent(label: str) -> bool:
    """Whether an intent is left out of training altogether, so that calibration sees unseen intents."""
    return bucket(f"intent {label}", INTENTS_EVERY) == 0


@dataclass
class Corpus:
    """All rows of a folder of training sets, by task; `held_out` chooses which part."""

    folder: Path
    held_out: bool = False
    _files: dict[str, dict[str, list[Row]]] = field(default_factory=dict)

    def rows(self, file: str, task: str) -> list[Row]:
        """Rows of a task in `<file>.parquet`, in a fixed order."""
        if file not in self._files:
            self._files[file] = _read(self.folder / f"{file}.parquet", self.held_out)
        return self._files[file][task]

    @cached_property
    def by_label(self) -> dict[tuple[str, str], dict[str, list[Row]]]:
        """Cache of `labelled`."""
        return {}

    def labelled(self, file: str, task: str) -> dict[str, list[Row]]:
        """Rows of a task by their label."""
        key = (file, task)
        if key not in self.by_label:
            groups: dict[str, list[Row]] = {}
            for row in self.rows(file, task):
                groups.setdefault(row.label, []).append(row)
            self.by_label[key] = dict(sorted(groups.items()))
        return self.by_label[key]


def _read(path: Path, held_out: bool) -> dict[str, list[Row]]:
    tasks: dict[str, list[Row]] = {}
    for values in pl.read_parquet(path, columns=[*COLUMNS]).iter_rows(named=True):
        task, extra = values.pop("task"), values.pop("extra")
        row = Row(**values, extra=json.loads(extra) if extra else {})
        if (bucket(row.text, EVERY) == 0) == held_out:
            tasks.setdefault(task, []).append(row)
    return tasks


COLUMNS = ("task", "id", "text", "text2", "question", "label", "extra")


def cut(text: str, chars: int) -> str:
    """The text, or its beginning up to the last word that fits."""
    return text if len(text) <= chars else text[:chars].rsplit(" ", 1)[0]
