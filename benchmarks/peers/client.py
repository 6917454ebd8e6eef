"""The other engine as an object: starts it in its own Python, feeds it prompts, reads answers and seconds."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from benchmarks.common import Spent
from benchmarks.peers.side import Asked, Prompts

WORKER = Path(__file__).with_name("vllm_worker.py")
VARIABLE = "QUAIL_FRAMES_PEER_PYTHON"
"""Environment variable with the path of the Python that vLLM is installed in."""


@dataclass(frozen=True)
class PeerSettings:
    """How vLLM is run: its fastest settings on a CPU."""

    folder: Path
    dtype: str
    threads: int
    max_length: int
    kv_gib: int = 4
    batch_tokens: int = 8192
    block_size: int = 32
    """vLLM's default on a CPU is 128; smaller blocks share more of a prefix, and 32 is its smallest efficient one."""

    def arguments(self) -> dict[str, Any]:
        """Of `vllm.LLM`."""
        return {
            "model": str(self.folder),
            "dtype": self.dtype,
            "skip_tokenizer_init": True,
            "max_model_len": self.max_length,
            "enable_prefix_caching": True,
            "block_size": self.block_size,
            "max_num_seqs": 256,
            "max_num_batched_tokens": self.batch_tokens,
            "max_logprobs": -1,
            "seed": 0,
        }

    def environment(self) -> dict[str, str]:
        """Both cores bound, or it is half as fast; nothing fetched, nothing reported."""
        return {
            **os.environ,
            "VLLM_CPU_OMP_THREADS_BIND": bound_cores(self.threads),
            "OMP_NUM_THREADS": str(self.threads),
            "VLLM_CPU_KVCACHE_SPACE": str(self.kv_gib),
            "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
            "VLLM_USE_AOT_COMPILE": "0",  # 0.32.0 cannot load what it saved, and compiles at every start
            "VLLM_NO_USAGE_STATS": "1",
            "HF_HUB_OFFLINE": "1",
        }


def bound_cores(threads: int) -> str:
    """The first cores of this process, as vLLM wants them named."""
    cores = sorted(os.sched_getaffinity(0))[:threads]
    whole = cores == list(range(cores[0], cores[-1] + 1)) and len(cores) > 1
    return f"{cores[0]}-{cores[-1]}" if whole else ",".join(map(str, cores))


class Peer:
    """A running vLLM."""

    def __init__(self, python: str, settings: PeerSettings) -> None:
        self._log = tempfile.NamedTemporaryFile(mode="w+", prefix="vllm-", suffix=".log")  # noqa: SIM115
        self._process = subprocess.Popen(
            [python, str(WORKER)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            env=settings.environment(),
            cwd=tempfile.gettempdir(),
        )
        self.hello = self._exchange(settings.arguments())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process: it leaves when its input ends."""
        assert self._process.stdin is not None and self._process.stdout is not None
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._process.stdout.close()
        self._log.close()

    def ask(self, prompts: Prompts) -> Asked:
        """The most likely answer of each prompt."""
        if not len(prompts):
            return Asked.of(prompts, [], 0, Spent())
        reply = self._request("ask", prompts)
        return Asked.of(
            prompts, reply["tokens"], reply["computed"], Spent(reply["seconds"], reply["processor_seconds"])
        )

    def gaps(self, prompts: Prompts) -> npt.NDArray[np.float64]:
        """How far the best answer of each prompt is above the second, in logits."""
        steps = self._request("score", prompts)["steps"] if len(prompts) else []
        pairs = zip(prompts.which.tolist(), steps, strict=True)
        found = [prompts.choices[number].gap([dict(scores) for scores in each]) for number, each in pairs]
        return np.array(found, dtype=np.float64)

    def reset(self) -> None:
        """Forget all cached prefixes."""
        self._exchange({"operation": "reset"})

    def _request(self, operation: str, prompts: Prompts) -> dict[str, Any]:
        lists = {"values": prompts.lists.values.tolist(), "lengths": prompts.lists.lengths.tolist()}
        choices = {"choices": [choice.sequences for choice in prompts.choices], "which": prompts.which.tolist()}
        return self._exchange({"operation": operation, **lists, **choices})

    def _exchange(self, content: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None and self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps(content) + "\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = ""
        if not line:
            self._log.seek(0)
            log = self._log.read()[-3000:]
            self.close()
            raise RuntimeError(f"vLLM has stopped; the end of its log:\n{log}")
        reply: dict[str, Any] = json.loads(line)
        return reply
