"""Which Chromium there is."""

from __future__ import annotations

import os
import shutil

import pytest

NAMES = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
"""The quickest first: a page takes the shell a third of the processor time that it takes a whole browser."""
CHROMIUM = next((path for name in NAMES if (path := shutil.which(name))), None)
MISSING = "no Chromium on this machine; .ci/run installs Debian's"


def need_chromium() -> None:
    """Skip where there is no Chromium, except in CI, where that is a failure."""
    if CHROMIUM is None:
        if os.environ.get("ATTN_EXP_CI"):
            pytest.fail(MISSING)
        pytest.skip(MISSING)
