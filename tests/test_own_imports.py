"""Files of a project, which import what lies in their package, or at the top of the project."""

import importlib.util
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
        ".git/HEAD": "", "net/__init__.py": "", "net/sizes.py": "VALUE = 3\n",
        "net/models/layers.py": "from ..sizes import VALUE\n",
    }),
    "its package itself": ("net/mine.py", "from . import VALUE", {"net/__init__.py": "VALUE = 3\n"}),
    "its package, of a name that is taken": ("test/mine.py", "from .sizes import VALUE", {
        "test/__init__.py": "", "test/sizes.py": "VALUE = 3\n",
    }),
    "a package that is a project": ("net/mine.py", "from . import VALUE", {
        "net/.git/HEAD": "", "net/__init__.py": "VALUE = 3\n",
    }),
    "the folder of all sources": ("src/net/mine.py", "from net.sizes import VALUE", {
        "setup.py": "", "src/net/__init__.py": "", "src/net/sizes.py": "VALUE = 3\n",
    }),
    "the top of its project": ("models_here/deep/mine.py", "from models_here.parts.one import VALUE", {
        "pyproject.toml": "", "sizes_of_all.py": "VALUE = 3\n",
        "models_here/parts/one.py": "from sizes_of_all import VALUE\n",
    }),
}  # fmt: skip


@pytest.mark.parametrize("place", PROJECTS)
def test_a_file_imports_from_its_package_and_project(place: str, tmp_path: Path) -> None:
    file, line, files = PROJECTS[place]
    laid(tmp_path, {**files, file: f"{line}\n{PLAIN}"})
    assert own_code.find_function(f"{tmp_path}/{file}:attention").function(0, 0, 0) == 3


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


@pytest.mark.long
@pytest.mark.parametrize(
    ("first", "there", "chosen"),
    [
        ("", ("jax", "torch"), "torch"),
        ("import jax", ("jax", "torch"), "jax"),
        ("", ("torch",), "torch"),
        ("import os; os.environ.setdefault('KERAS_BACKEND', 'mine')", ("jax",), "mine"),
    ],
)
def test_keras_computes_with_what_is_installed(
    first: str, there: tuple[str, ...], chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "keras.py").write_text("import os\nlibrary = os.environ['KERAS_BACKEND']\n", encoding="utf-8")
    (tmp_path / "file_of_keras.py").write_text(f"{first}\nimport keras\n", encoding="utf-8")
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name in there or None)
    monkeypatch.setenv("KERAS_BACKEND", "so that it is put back")
    monkeypatch.delenv("KERAS_BACKEND")
    for name in ("keras", "torch", "jax"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "jax.py").write_text("", encoding="utf-8")
    assert own_code.module_of_functions(str(tmp_path / "file_of_keras.py")).keras.library == chosen


def test_files_of_one_name_beside_two_files_are_two_modules(tmp_path: Path) -> None:
    code = f"from scale_beside import VALUE\n{PLAIN}"
    laid(tmp_path, {f"{one}/{name}.py": text for one in "12" for name, text in
                    {"attn": code, "scale_beside": f"VALUE = {one}\n"}.items()})  # fmt: skip
    found = [own_code.find_function(f"{tmp_path}/{one}/attn.py:attention").function(0, 0, 0) for one in "12"]
    assert found == [1, 2]
