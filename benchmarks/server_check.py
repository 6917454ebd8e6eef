"""backend="openai" against a real server on this machine: vLLM's own, or any that already runs.

    make server-check PEER_PYTHON=/path/to/python           starts vLLM's server from that Python, and asks it
    python -m benchmarks.server_check --base-url http://localhost:8080/v1 --model some-model

Answers constrained to choices, log-probabilities, both APIs, concurrency, and what goes wrong. Exits with 1 where a
check failed. A server that this started is ended in the middle of a run by the last check.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from argparse import Namespace
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import polars as pl

import quail_frames as qf
from benchmarks.checking import timed
from benchmarks.common import Machine, options, show, write
from benchmarks.data import texts
from quail_frames.runtime.engine import Engine
from quail_frames.runtime.models.export import huggingface_folder
from quail_frames.runtime.options import DEFAULT_MODEL

LABELS = ["card payment", "cash withdrawal", "transfer", "exchange rate", "something else"]
QUESTION = "Is this about a card?\n\n{text}"
START_SECONDS = 900.0
"""A CPU build of vLLM on a busy machine takes minutes to start."""
OVERHEAD = 1.1
"""A server that batches is no slower with many questions under way than with one; by the clock of a busy machine."""


@dataclass(frozen=True)
class Place:
    """A server: its address, the name of its model, the longest prompt, and how to end it where it is ours."""

    base_url: str
    model: str
    end: Callable[[], None] | None = None

    def engine(self, **further: Any) -> Engine:
        """An engine on this server."""
        return Engine(self.model, backend="openai", base_url=self.base_url, **{"timeout": 300.0, **further})


def main(arguments: list[str] | None = None) -> None:
    """Entry point."""
    parser = options(__doc__)
    parser.add_argument("--base-url", help="a server that runs already, up to /v1; default: vLLM's is started")
    parser.add_argument("--model", default=DEFAULT_MODEL, help="of the server (default: %(default)s)")
    parser.add_argument("--rows", type=int, default=24, help="messages asked about (default: %(default)s)")
    parser.add_argument("--log", type=Path, default=Path("benchmarks/out/server.log"), help="of a server started here")
    chosen = parser.parse_args(arguments)
    machine = Machine.here()
    frame = pl.DataFrame({"text": texts("support_messages")[: chosen.rows]}).unique(maintain_order=True)
    with served(chosen) as place:
        found = [timed(name, lambda check=check: (True, check(place, frame))) for name, check in CHECKS.items()]
    write(chosen.json, {"checks": [asdict(check) for check in found], "model": chosen.model}, machine)
    rows = [["ok" if check.passed else "FAILED", check.name, check.found, check.seconds] for check in found]
    show("a real endpoint", ("", "check", "found", "seconds"), rows, f"{chosen.model}; {machine.line()}")
    if not all(check.passed for check in found):
        raise SystemExit(1)


def must(holds: bool, what: str) -> None:
    """Asserts, also under python -O."""
    if not holds:
        raise AssertionError(what)


def answers(place: Place, frame: pl.DataFrame) -> str:
    """TRUE/FALSE in a chat, constrained in the server's own words: every row answered, in order, and counted."""
    report = qf.RunReport()
    with place.engine() as engine:
        found = qf.lazy(frame).with_columns(ok=qf.ai_if(QUESTION)).collect(engine=engine, report=report)
    must(found["text"].to_list() == frame["text"].to_list(), "rows are in another order")
    must(found["ok"].null_count() == 0 and not report.failures, f"not answered: {report.failures}")
    must(report.fresh_tokens + report.reused_tokens > 0, "the server counts no tokens")
    return f"{len(found)} answers, {found['ok'].sum()} TRUE, {report.fresh_tokens} tokens computed"


def choices(place: Place, frame: pl.DataFrame) -> str:
    """One label of several, as it is written."""
    with place.engine() as engine:
        found = qf.lazy(frame).with_columns(label=qf.ai_classify("text", LABELS)).collect(engine=engine)
    must(set(found["label"].to_list()) <= set(LABELS), f"another label: {found['label'].unique().to_list()}")
    return f"{found['label'].n_unique()} of {len(LABELS)} labels given"


def schemas(place: Place, frame: pl.DataFrame) -> str:
    """The same, held to a JSON schema. A small model may fill it with white space to the end: null with that reason."""
    report = qf.RunReport()
    with place.engine(structured="json_schema") as engine, warnings.catch_warnings():
        warnings.simplefilter("ignore", qf.QuailFramesWarning)
        query = qf.lazy(frame.head(6)).with_columns(label=qf.ai_classify("text", LABELS))
        labels = query.collect(engine=engine, report=report)["label"]
        must(engine._model.asker.dialect.structured == "json_schema", "the server refuses the schema")  # type: ignore[union-attr]
    must(set(labels.drop_nulls()) <= set(LABELS), f"another label: {labels.unique().to_list()}")
    must(labels.null_count() == len(report.failures), "a null without a reason")
    reason = f"; {report.failures[-1].reason}" if report.failures else ""
    return f"{len(labels) - labels.null_count()} labels, {labels.null_count()} null{reason}"


def likelihoods(place: Place, frame: pl.DataFrame) -> str:
    """Scores and probabilities from log-probabilities."""
    query = qf.lazy(frame).with_columns(
        score=qf.ai_score(QUESTION), label=qf.ai_classify("text", LABELS, probabilities=True)
    )
    with place.engine() as engine:
        found = query.collect(engine=engine)
    scores = found["score"]
    must(scores.null_count() == 0 and scores.is_between(0, 1).all(), "scores outside 0 to 1")
    must(scores.n_unique() > len(frame) // 2, "scores do not tell texts apart")
    sums = found["label"].struct.field("probabilities").struct.unnest().sum_horizontal()
    must(((sums - 1).abs() < 1e-6).all(), "probabilities do not add up to 1")
    return f"scores {scores.min():.3f} to {scores.max():.3f}"


def completions(place: Place, frame: pl.DataFrame) -> str:
    """The completions API, with the native prompt: scores beside those of the native runtime."""
    query = qf.lazy(frame).with_columns(score=qf.ai_score(QUESTION))
    with place.engine(api="completions") as engine:
        theirs = query.collect(engine=engine)["score"]
    must(theirs.null_count() == 0, "not answered")
    if place.model != DEFAULT_MODEL:
        return f"scores {theirs.min():.3f} to {theirs.max():.3f}"
    with Engine(dtype="float32") as engine:
        ours = query.collect(engine=engine)["score"]
    together = pl.DataFrame({"ours": ours, "theirs": theirs}).select(pl.corr("ours", "theirs", method="spearman"))
    return f"rank correlation with the native scores {together.item():.3f}"


def concurrency(place: Place, frame: pl.DataFrame) -> str:
    """Many questions under way give what one at a time gives, and not slower."""
    found, seconds = [], []
    for under_way, question in ((1, "Is the customer angry?\n\n{text}"), (16, "Is the customer angry now?\n\n{text}")):
        with place.engine(concurrency=under_way) as engine:
            started = time.monotonic()
            query = qf.lazy(frame).with_columns(ok=qf.ai_if(question))
            found.append(query.collect(engine=engine))
            seconds.append(time.monotonic() - started)
    must(all(part["ok"].null_count() == 0 for part in found), "not answered")
    must(all(part["text"].to_list() == frame["text"].to_list() for part in found), "rows are in another order")
    must(seconds[1] < OVERHEAD * seconds[0], f"{seconds[0]:.1f} s one at a time, {seconds[1]:.1f} s with 16 under way")
    return f"{seconds[0]:.1f} s one at a time, {seconds[1]:.1f} s with 16 under way"


def unknown_model(place: Place, frame: pl.DataFrame) -> str:
    """A model that the server does not have ends the run at once."""
    try:
        with Engine("no-such-model", backend="openai", base_url=place.base_url) as engine:
            qf.lazy(frame).with_columns(ok=qf.ai_if(QUESTION)).collect(engine=engine)
    except qf.ModelError as error:
        return str(error).splitlines()[0][:120]
    raise AssertionError("it is answered")


def too_long(place: Place, frame: pl.DataFrame) -> str:
    """A prompt beyond the server's context is null with the server's reason; its neighbours are answered."""
    rows = pl.concat([frame.head(2), pl.DataFrame({"text": ["a card " * 20_000]}), frame.tail(2)])
    report = qf.RunReport()
    with place.engine() as engine, warnings.catch_warnings():
        warnings.simplefilter("ignore", qf.QuailFramesWarning)
        found = qf.lazy(rows).with_columns(ok=qf.ai_if(QUESTION)).collect(engine=engine, report=report)
    must(found["ok"].is_null().to_list() == [False, False, True, False, False], f"{found['ok'].to_list()}")
    must([failure.row for failure in report.failures] == [2], f"{report.failures}")
    return report.failures[0].reason[:120]


def killed(place: Place, frame: pl.DataFrame) -> str:
    """A server that dies in the middle of a run ends it with an error, and nothing hangs."""
    if place.end is None:
        return "left out: the server is not ours"
    many = pl.concat([frame.with_columns(text=pl.format("{} ({})", "text", pl.lit(n))) for n in range(40)])
    with place.engine(concurrency=4, retries=1, timeout=60.0) as engine:
        batches = qf.lazy(many).with_columns(ok=qf.ai_if(QUESTION)).collect_batches(engine=engine)
        before = len(next(batches))
        place.end()
        try:
            for _ in batches:
                pass
        except qf.ModelError as error:
            return f"after {before} rows: {str(error).splitlines()[0]}"[:160]
    raise AssertionError("all rows were answered")


CHECKS: dict[str, Callable[[Place, pl.DataFrame], str]] = {
    "TRUE and FALSE": answers,
    "labels": choices,
    "JSON schema": schemas,
    "log-probabilities": likelihoods,
    "completions API": completions,
    "concurrency": concurrency,
    "unknown model": unknown_model,
    "too long a prompt": too_long,
    "server dies": killed,
}


@contextlib.contextmanager
def served(chosen: Namespace) -> Iterator[Place]:
    """The server that is asked; vLLM's is started, and ended afterwards, where none is named."""
    if chosen.base_url is not None:
        yield Place(chosen.base_url, chosen.model)
        return
    port, folder = _free_port(), huggingface_folder(chosen.model)
    command = [sys.executable, "-m", "vllm.entrypoints.openai.api_server", "--model", str(folder), "--port", str(port)]
    command += ["--served-model-name", chosen.model, "--dtype", "float32", "--max-model-len", "2048"]
    command += ["--enforce-eager", "--host", "127.0.0.1", "--kv-cache-memory-bytes", str(1 << 30)]
    chosen.log.parent.mkdir(parents=True, exist_ok=True)
    with chosen.log.open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, start_new_session=True)
        try:
            _wait(process, f"http://127.0.0.1:{port}/health", chosen.log)
            yield Place(f"http://127.0.0.1:{port}/v1", chosen.model, lambda: _end(process))
        finally:
            _end(process)


def _wait(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    """Until the server answers."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        with contextlib.suppress(urllib.error.URLError, OSError), urllib.request.urlopen(url, timeout=5):
            return
        time.sleep(1)
    raise SystemExit(f"the server does not start; the end of {log}:\n{log.read_text()[-3000:]}")


def _end(process: subprocess.Popen[bytes]) -> None:
    """End the server with the processes that it started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return int(free.getsockname()[1])


if __name__ == "__main__":
    main()
