"""Another input in short: what names a file is a file."""

from __future__ import annotations

import pytest

from attn_exp.config.another_input import meant
from attn_exp.problem import files
from attn_exp.problem.files import pickles


@pytest.mark.parametrize("suffix", [*(f".{name}" for name in files.NAMES), *pickles.SUFFIXES])
def test_every_file_that_is_read_or_refused_as_one_is_a_file_in_short(suffix: str) -> None:
    assert meant(f"mine/x{suffix}", "embeddings.memory") == {"file": f"mine/x{suffix}"}


def test_a_sentence_is_words() -> None:
    assert meant("elle aime. le cafe", "embeddings.memory") == {"text": "elle aime. le cafe"}
