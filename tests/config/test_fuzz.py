"""Words and YAML with fixed seeds; `python -m tools.fuzz --only command_line yaml_files` tries more."""

from __future__ import annotations

import pytest

from tests.long import thinned
from tools.fuzz import command_line, yaml_files


@pytest.mark.parametrize("first", thinned(range(0, 200, 50), 4))
def test_no_words_end_in_a_traceback(first: int) -> None:
    fallen = {seed: message for seed in range(first, first + 50) if (message := command_line.attempt(seed))}
    assert not fallen


@pytest.mark.parametrize("first", thinned(range(0, 100, 50), 2))
def test_no_yaml_ends_in_a_traceback_or_acts(first: int) -> None:
    fallen = {seed: message for seed in range(first, first + 50) if (message := yaml_files.attempt(seed))}
    assert not fallen
