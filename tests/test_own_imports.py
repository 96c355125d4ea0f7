"""Files of a project, which import what lies in their package."""

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


PROJECTS = {
    "its package": ("net/models/mine.py", "from .layers import VALUE", {
        "net/__init__.py": "", "net/models/__init__.py": "", "net/sizes.py": "VALUE = 3\n",
        "net/models/layers.py": "from ..sizes import VALUE\n",
    }),
    "its package itself": ("net/mine.py", "from . import VALUE", {"net/__init__.py": "VALUE = 3\n"}),
    "its package, of a name that is taken": ("test/mine.py", "from .sizes import VALUE", {
        "test/__init__.py": "", "test/sizes.py": "VALUE = 3\n",
    }),
    "the folder of all sources": ("src/net/mine.py", "from net.sizes import VALUE", {
        "src/net/__init__.py": "", "src/net/sizes.py": "VALUE = 3\n",
    }),
}  # fmt: skip


@pytest.mark.parametrize("place", PROJECTS)
def test_a_file_imports_from_its_package(place: str, tmp_path: Path) -> None:
    file, line, files = PROJECTS[place]
    laid(tmp_path, {**files, file: f"{line}\n{PLAIN}"})
    assert own_code.find_function(f"{tmp_path}/{file}:attention").function(0, 0, 0) == 3


def test_nothing_above_a_package_is_imported(tmp_path: Path) -> None:
    laid(tmp_path, {
        "sizes_of_none.py": "VALUE = 6\n",
        "project/mine.py": f"from sizes_of_none import VALUE\n{PLAIN}",
    })  # fmt: skip
    with pytest.raises(UserError, match="No module named 'sizes_of_none'"):
        own_code.find_function(f"{tmp_path}/project/mine.py:attention")


def test_a_module_is_looked_for_where_the_command_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    laid(tmp_path, {"here_alone/mine.py": f"VALUE = 7\n{PLAIN}"})
    monkeypatch.chdir(tmp_path)
    assert own_code.find_function("here_alone.mine:attention").function(0, 0, 0) == 7


@pytest.mark.parametrize("line", ["from scale_beside import VALUE", "from .scale_beside import VALUE"])
def test_files_of_one_name_beside_two_files_are_two_modules(line: str, tmp_path: Path) -> None:
    code = {"attn": f"{line}\n{PLAIN}", **({"__init__": ""} if "." in line else {})}
    places = ["old/net", "net/old", "net"]  # one in a folder below the other
    laid(tmp_path, {f"{one}/{name}.py": text for one in places for name, text in
                    {**code, "scale_beside": f"VALUE = {one!r}\n"}.items()})  # fmt: skip
    found = [own_code.find_function(f"{tmp_path}/{one}/attn.py:attention").function(0, 0, 0) for one in places]
    assert found == places
