"""The folder of what is kept on this machine from one process to the next: models, and compiled kernels."""

from __future__ import annotations

import os
from pathlib import Path

CACHE_VARIABLE = "QUAIL_FRAMES_CACHE"


def cache_folder() -> Path:
    """Where it is: `QUAIL_FRAMES_CACHE`, else the user's cache folder."""
    if os.environ.get(CACHE_VARIABLE):
        return Path(os.environ[CACHE_VARIABLE])
    import platformdirs  # a GPU machine may lack it

    return Path(platformdirs.user_cache_dir("quail-frames", appauthor=False))
