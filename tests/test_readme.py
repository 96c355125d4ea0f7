"""The README begins with what the program is, how to install it, and five things to do; CI runs its test command."""

from __future__ import annotations

import re

from tests import ROOT

README = (ROOT / "README.md").read_text(encoding="utf-8")
CI = (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_each_preset_of_the_five_documents_has_its_command() -> None:
    names = re.findall(r"`experiment=(\w+)`", README)
    assert len(names) == 8
    assert all((ROOT / f"conf/experiment/{name}.yaml").is_file() for name in names)


def test_ci_runs_the_readmes_own_commands_and_the_long_tests() -> None:
    assert len(re.findall(r"^python3 -m venv .*pytest$", README, re.MULTILINE)) == 1
    assert "grep -m 1 -E '^python3 -m venv .*pytest$' README.md" in CI
    assert len(re.findall(r"pip install -e '[^']*' && sphinx-build [^`]*", README)) == 1
    assert '"${test_command##* && } --all' in CI
