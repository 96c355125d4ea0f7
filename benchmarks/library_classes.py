"""The classes and functions of attention of an installed library, as a folder for `benchmarks/check.py --world`:

    python benchmarks/library_classes.py transformers FOLDER
    python benchmarks/check.py --world FOLDER

Each counts once: models copy each other's code, and names of models and of their settings are no difference. What a
class leaves to others of its file, such as a processor or a function, is a part of it and stands nowhere else.
They stand in the folder's table as right, since people use them; what is no softmax attention, or is meant otherwise,
such as without a scale, is for the reader to tell. Nothing is imported, and nothing of the library is copied: a file of
the folder imports its class.
"""

from __future__ import annotations

import argparse
import ast
import csv
import hashlib
import re
from collections.abc import Iterator, Mapping
from importlib.util import find_spec
from pathlib import Path

CALLS = ("forward", "__call__", "call")
SAYS_SOFTMAX = re.compile(r"softmax|attention_interface|scaled_dot|dot_product_attention|dispatch_attention")
"""Words of code that weighs keys itself, or has them weighed."""
IS_ALONE = re.compile(r"(Attention|Attn|MHA|MSA)(Layer|V?\d+[dD]?)?$")
"""Names of what is attention and nothing else, so that it may leave all of it to others."""
IS_CLASS = re.compile(r"(Attention|Attn|MHA|MSA|MultiHead\w*)(Layer|Block|Module|Pool\w*|V?\d+[dD]?)*$")
IS_FUNCTION = re.compile(r"(?!_).*(attention|attn)", re.IGNORECASE)
LIBRARIES = ("jax", "flax", "haiku", "equinox", "keras", "torch")
Top = ast.ClassDef | ast.FunctionDef


def main() -> None:
    """Write the folder."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("library", help="an installed package, such as transformers")
    parser.add_argument("folder", type=Path)
    asked = parser.parse_args()
    home = home_of(asked.library)
    if home is None:
        parser.error(f"{asked.library} is not installed")
    asked.folder.mkdir(parents=True, exist_ok=True)
    rows = list(rows_of(asked.library, home, asked.folder))
    with (asked.folder / "truth.csv").open("w", newline="", encoding="utf-8") as file:
        columns = ("file", "name", "right_or_wrong", "expected", "words", "framework", "source", "note")
        csv.writer(file).writerows([columns, *rows])
    print(f"{len(rows)} classes and functions")


def home_of(library: str) -> Path | None:
    """Return the folder of an installed package, or None."""
    spec = find_spec(library)
    return None if spec is None or spec.origin is None else Path(spec.origin).parent


def rows_of(library: str, home: Path, folder: Path) -> Iterator[tuple[str, ...]]:
    """Write a file for each class and function, and yield its row of the table."""
    seen = set[str]()
    for path in sorted(home.rglob("*.py")):
        module = ".".join((library, *path.relative_to(home).with_suffix("").parts)).removesuffix(".__init__")
        text = path.read_text(encoding="utf-8", errors="replace")
        framework = " ".join(re.findall(rf"^(?:import|from) ({'|'.join(LIBRARIES)})\b", text, re.MULTILINE))
        for name, code in attention_in(text):
            if code in seen:
                continue
            seen.add(code)
            file = f"{len(seen):04d}_{name}.py"
            (folder / file).write_text(f"from {module} import {name}\n", encoding="utf-8")
            yield file, name, "right", "", "", framework or "torch", module, ""


def attention_in(text: str) -> Iterator[tuple[str, str]]:
    """Yield the classes and functions of attention of a file, each with a digest of its code.

    The digest knows no name of a model.
    """
    try:
        tree = ast.parse(text)
    except SyntaxError:
        return
    tops = {one.name: one for one in tree.body if isinstance(one, Top)}
    found = [one for one in tops.values() if is_attention(one, tops)]
    left_to = set().union(*(set(behind(one, tops)) for one in found if isinstance(one, ast.ClassDef)))
    for one in found:
        if one.name not in left_to or isinstance(one, ast.ClassDef):
            code = "\n".join((code_of(one), *map(code_of, behind(one, tops).values())))
            model = re.match(r"_*[A-Z]+[a-z0-9]*", one.name)
            alike = re.sub(model[0], "Model", code) if model else code
            yield one.name, hashlib.sha256(re.sub(r"\w*Config\b", "Config", alike).encode()).hexdigest()


def is_attention(one: Top, tops: Mapping[str, Top]) -> bool:
    """Say whether a class that is called, or a function that answers, weighs keys itself or has them weighed."""
    if isinstance(one, ast.FunctionDef):
        answers = any(isinstance(part, ast.Return) and part.value is not None for part in ast.walk(one))
        return answers and bool(IS_FUNCTION.match(one.name) and SAYS_SOFTMAX.search(code_of(one)))
    calls = [part.args.args for part in one.body if isinstance(part, ast.FunctionDef) and part.name in CALLS]
    is_called = bool(calls) and not any(taken.arg == "attn" for taken in calls[0][1:2])  # else another's processor
    others = behind(one, tops).values() if IS_ALONE.search(one.name) else ()
    is_named = is_called and bool(IS_CLASS.search(one.name))
    return is_named and any(SAYS_SOFTMAX.search(code_of(part)) for part in (one, *others))


def behind(one: Top, tops: Mapping[str, Top]) -> dict[str, Top]:
    """Return the classes and functions of a file to which one of them leaves something, or those to others."""
    found, left = dict[str, Top](), [one]
    while left:
        for part in ast.walk(left.pop()):
            if isinstance(part, ast.Name) and part.id in tops and part.id != one.name and part.id not in found:
                found[part.id] = tops[part.id]
                left.append(tops[part.id])
    return found


def code_of(one: Top) -> str:
    """Return the code of a class or function without its name and what it says of itself."""
    told = [part for part in one.body if not (isinstance(part, ast.Expr) and isinstance(part.value, ast.Constant))]
    taken = ast.unparse(one.args) if isinstance(one, ast.FunctionDef) else ", ".join(map(ast.unparse, one.bases))
    return f"{taken}\n{ast.unparse(ast.Module(body=told, type_ignores=[]))}"


if __name__ == "__main__":
    main()
