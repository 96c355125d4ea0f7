"""The settings of a check are composed as tests compose those of a run: what Hydra makes of files is kept.

So is the configuration of words that name no file, such as `mask=causal seed=1`: thousands of checks ask for the same.
"""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Sequence
from importlib.util import find_spec

import pytest

from attn_exp import registry
from attn_exp.config.compose import composed
from attn_exp.config.schema import Config
from tests.compose import config

if find_spec("torch") is not None:  # as the adapter of docs/check.md has it; all tests of a process share one Keras
    os.environ.setdefault("KERAS_BACKEND", "torch")


PLAIN = re.compile(r"(?!\S*(file|path|text|code))[a-z_.]+=(\w+|[\d.]+)")
of_plain_words = functools.cache(config)


@pytest.fixture(autouse=True)
def kept_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_kept_files(words: Sequence[str], folders: Sequence[str], *, typed: bool = True) -> Config:
        if not typed or folders:
            return composed(words, folders, typed=typed)
        plain = not registry.OUTSIDE and all(PLAIN.fullmatch(word) for word in words)
        return of_plain_words(*words) if plain else config(*words)

    for user in ("config.compose", "diagnosis.command", "diagnosis.request"):
        monkeypatch.setattr(f"attn_exp.{user}.composed", with_kept_files)
