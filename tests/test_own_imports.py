"""Files of a project, which import what lies in their package, or at the top of the project."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from attn_exp import own_code
from attn_exp.errors import UserError

PLAIN = "def attention(q, k, v):\n    return VALUE\n"


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    path, modules = list(sys.path), set(sys.modules)
    yield
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        del sys.modules[name]


def laid(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def test_a_file_imports_what_lies_in_its_package(tmp_path: Path) -> None:
    laid(tmp_path, {
        ".git/HEAD": "",
        "net/__init__.py": "",
        "net/sizes.py": "VALUE = 3\n",
        "net/models/layers.py": "from ..sizes import VALUE\n",
        "net/models/mine.py": f"from .layers import VALUE\n{PLAIN}",
    })  # fmt: skip
    found = own_code.find_function(f"{tmp_path}/net/models/mine.py:attention")
    assert found.function(0, 0, 0) == 3


def test_what_a_package_holds_itself_is_there_where_a_file_wants_it(tmp_path: Path) -> None:
    laid(tmp_path, {"net/__init__.py": "VALUE = 4\n", "net/mine.py": f"from . import VALUE\n{PLAIN}"})
    assert own_code.find_function(f"{tmp_path}/net/mine.py:attention").function(0, 0, 0) == 4


def test_a_file_imports_from_the_top_of_its_project(tmp_path: Path) -> None:
    laid(tmp_path, {
        "pyproject.toml": "",
        "sizes_of_all.py": "VALUE = 5\n",
        "models_here/parts/one.py": "from sizes_of_all import VALUE\n",
        "models_here/deep/mine.py": f"from models_here.parts.one import VALUE\n{PLAIN}",
    })  # fmt: skip
    assert own_code.find_function(f"{tmp_path}/models_here/deep/mine.py:attention").function(0, 0, 0) == 5


def test_nothing_above_a_project_is_imported(tmp_path: Path) -> None:
    laid(tmp_path, {
        "sizes_of_none.py": "VALUE = 6\n",
        "project/pyproject.toml": "",
        "project/mine.py": f"from sizes_of_none import VALUE\n{PLAIN}",
    })  # fmt: skip
    with pytest.raises(UserError, match="No module named 'sizes_of_none'"):
        own_code.find_function(f"{tmp_path}/project/mine.py:attention")


def test_a_module_is_looked_for_where_the_command_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laid(tmp_path, {"here_alone/mine.py": f"VALUE = 7\n{PLAIN}"})
    monkeypatch.chdir(tmp_path)
    assert own_code.find_function("here_alone.mine:attention").function(0, 0, 0) == 7
