"""The settings of a check are composed as tests compose those of a run: what Hydra makes of files is kept."""

from __future__ import annotations

import os
from collections.abc import Sequence
from importlib.util import find_spec

import pytest

from attn_exp.config.compose import compose_config
from attn_exp.config.schema import Config
from tests.compose import config

if find_spec("torch") is not None:  # as the adapter of docs/check.md has it; all tests of a process share one Keras
    os.environ.setdefault("KERAS_BACKEND", "torch")


@pytest.fixture(autouse=True)
def kept_files(monkeypatch: pytest.MonkeyPatch) -> None:
    def with_kept_files(words: Sequence[str], folders: Sequence[str], *, typed: bool = True) -> Config:
        if not typed or folders:
            return compose_config(words, folders, typed=typed)
        return config(*words)

    for user in ("config.compose", "diagnosis.command", "diagnosis.asking.request"):
        monkeypatch.setattr(f"attn_exp.{user}.compose_config", with_kept_files)
