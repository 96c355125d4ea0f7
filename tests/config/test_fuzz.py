"""Words and YAML with fixed seeds; `python -m tools.fuzz --only command_line yaml_files` tries more."""

from __future__ import annotations

import pytest

from tools.fuzz import command_line, yaml_files

pytestmark = pytest.mark.long  # it starts processes, browsers or other libraries, or takes seconds


@pytest.mark.parametrize("first", range(0, 40, 20))
def test_no_words_end_in_a_traceback(first: int) -> None:
    fallen = {seed: message for seed in range(first, first + 20) if (message := command_line.attempt(seed))}
    assert not fallen


@pytest.mark.parametrize("first", range(0, 20, 20))
def test_no_yaml_ends_in_a_traceback_or_acts(first: int) -> None:
    fallen = {seed: message for seed in range(first, first + 20) if (message := yaml_files.attempt(seed))}
    assert not fallen
