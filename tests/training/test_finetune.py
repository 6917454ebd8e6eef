"""`qf.finetune`: a user's own answers become an adapter that any query can load."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest
import torch

import quail_frames as qf
from quail_frames.errors import CallError, ColumnError
from quail_frames.runtime.models.load import LoadedModel
from quail_frames.tuning.adapter_file import trainable
from quail_frames.tuning.labelled import labelled_rows


def letters_frame(rows: int = 120) -> pl.DataFrame:
    """Short texts whose first letter decides."""
    texts = [f"{'abxy'[number % 4]}{number}" for number in range(rows)]
    return pl.DataFrame({"body": texts, "early": [text[0] in "ab" for text in texts]}).with_columns(
        half=pl.when("early").then(pl.lit("first")).otherwise(pl.lit("second"))
    )


@pytest.fixture(scope="module")
def base(tiny_model: LoadedModel) -> str:
    return tiny_model.name


@pytest.mark.slow
def test_a_question_is_learnt_and_the_file_is_a_model(
    base: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    frame = letters_frame()
    out = tmp_path / "early.safetensors"
    tuned = qf.finetune(frame, "Early?\n\n{body}", truth="early", out=out, base=base, epochs=5)
    assert tuned.after > 0.9 > tuned.before
    assert "right on" in capsys.readouterr().out and tuned.trained + tuned.held_out < frame.height
    with qf.Engine(out) as engine:
        answers = qf.lazy(frame).with_columns(answer=qf.ai_if("Early?\n\n{body}")).collect(engine=engine)
    assert (answers["answer"] == answers["early"]).mean() > 0.9


@pytest.mark.slow
def test_labels_are_learnt_through_the_decision_head(base: str, tmp_path: Path) -> None:
    question = qf.ai_classify("body", ["first", "second"])
    tuned = qf.finetune(letters_frame(), question, truth="half", out=tmp_path / "a.safetensors", base=base, epochs=5)
    assert tuned.after > 0.9
    again = qf.finetune(
        letters_frame(), question, truth="half", out=tmp_path / "b.safetensors", base=tuned.path, epochs=0.1
    )
    assert again.before == tuned.after


def test_equal_seeds_give_equal_files(base: str, tmp_path: Path) -> None:
    for name in ("a.safetensors", "b.safetensors"):
        qf.finetune(letters_frame(60), "Early?\n\n{body}", truth="early", out=tmp_path / name, base=base, epochs=0.2)
    (tensors, facts), (others, other_facts) = (trainable(tmp_path / f"{name}.safetensors") for name in "ab")
    assert facts == other_facts and all(torch.equal(tensor, others[name]) for name, tensor in tensors.items())


def test_rows_with_a_null_are_left_out() -> None:
    frame = pl.DataFrame({"body": ["a", None, "c"], "early": [True, True, None]})
    _, rows = labelled_rows(frame, "Early?\n\n{body}", "early")
    assert [(row.texts, row.target) for row in rows] == [(("a",), 1.0)]


def test_what_does_not_fit_is_refused_with_advice() -> None:
    frame = letters_frame(8)
    with pytest.raises(ColumnError, match="no column of the frame; did you mean 'early'"):
        labelled_rows(frame, "Early?\n\n{body}", "earli")
    with pytest.raises(ColumnError, match="make it Boolean"):
        labelled_rows(frame, "Early?\n\n{body}", "half")
    with pytest.raises(ColumnError, match="is no label"):
        labelled_rows(frame, qf.ai_classify("body", ["one", "two"]), "half")
    with pytest.raises(CallError, match="computes with its answer"):
        labelled_rows(frame, qf.ai_score("Early?\n\n{body}") > 0.5, "early")
    with pytest.raises(CallError, match="too few"):
        qf.finetune(frame, "Early?\n\n{body}", truth="early", out="x.safetensors", base="smollm2-135m")


def test_equal_texts_are_never_on_both_sides() -> None:
    _, rows = labelled_rows(letters_frame().with_columns(body=pl.lit("same")), "Early?\n\n{body}", "early")
    assert len({row.share for row in rows}) == 1
