"""Import the user's own code by name; no other module of this package imports user code.

Only code that the current command line names is imported: a function, such as `variant.mine.form=mine.py:attention`, or
a file of members, `--with mine.py`. Names in YAML or in a stored run or sweep are never imported. A file is identified
by a hash of its contents and its local imports, so that a run can record which code it ran.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import inspect
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import chdir, contextmanager, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from attn_exp import machine
from attn_exp.errors import FaultError, OwnCodeError, UserError, fault_line, is_fault, unknown

FORM = re.compile(r"\+{0,2}variant\.([^.=]+)\.form=(.*)", re.DOTALL)
"""An argument that names the form of a variant, such as `variant.mine.form=mine.py:attention`."""
BETWEEN = re.compile(r"""[\[\]{},'"=]""")
"""The characters that separate words in an argument whose value is a list or a mapping."""
THIS_PACKAGE = __name__.partition(".")[0]
MOST_CODE = 4 * 2**20  # size limit of a file that is searched for imports
OPTION = "--with"  # names a file of members
AGAINST = "--against"  # names another implementation with which to compare the function
MEMBERS = "_with_"  # the prefix of the module names of `--with` files


class Named(str):
    """The name of code that the user typed in this command or passed in Python; other strings are never imported."""


class LeftError(Exception):
    """User code tried to end the process: it called `sys.exit`, or raised another `BaseException`."""


@contextmanager
def guard_process() -> Iterator[None]:
    """Protect this process while user code runs, or while its result is read.

    What the code prints goes to stderr, since stdout is reserved for results. An attempt to end the process becomes an
    error.

    Raises:
        LeftError: the code raised SystemExit, or anything else that is neither an `Exception` nor KeyboardInterrupt.
    """
    import numpy as np  # noqa: PLC0415 - slow to import, and most commands run no user code

    try:
        with redirect_stdout(sys.stderr), np.errstate():  # user code may change how overflows are reported
            yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise LeftError(f"ended without an answer ({error_line(error)})") from error


def is_code(form: Any) -> bool:
    return isinstance(form, str) and ":" in form


def any_named(forms: Iterable[str]) -> bool:
    return any(isinstance(form, Named) for form in forms)


def variants_of_code(words: Iterable[str]) -> list[str]:
    matches = [FORM.fullmatch(word) for word in words]
    return [match[1] for match in matches if match and is_code(match[2])]


def mark_named(settings: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return a copy of the settings in which each form that these arguments name is a `Named` instead of a string."""
    variant_words = [word for word in words if re.match(r"\+*variant[.=]", word)]
    typed = {part.strip().removeprefix("form:").strip() for word in variant_words for part in BETWEEN.split(word)}

    def mark(variant: Any) -> Any:
        form = variant.get("form") if isinstance(variant, Mapping) else None
        return {**variant, "form": Named(form)} if is_code(form) and form in typed else variant

    variants = settings.get("variant")
    if not isinstance(variants, Mapping):
        return dict(settings)
    return {**settings, "variant": {name: mark(one) for name, one in variants.items()}}


def take_option(words: Sequence[str], option: str, needs: str) -> tuple[list[str], list[str]]:
    """Return the values of an option (`--with=x` or `--with x`), and all other arguments.

    Raises:
        UserError: the option has no value; the message is the option, followed by `needs`.
    """
    values, others, remaining = list[str](), list[str](), iter(words)
    for word in remaining:
        name, equals, value = word.partition("=")
        if name == option:
            values.append(value if equals else next(remaining, ""))
        else:
            others.append(word)
    if any(not value or value.startswith("-") for value in values):
        raise UserError(f"{option} {needs}")
    return values, others


def join_against(words: Sequence[str]) -> list[str]:
    """Join `--against` and its value into one argument, `--against=NAME`, and put it last.

    Raises:
        UserError: the option has no value.
    """
    names, others = take_option(
        words, AGAINST, "needs a function, such as torch.nn.functional:scaled_dot_product_attention"
    )
    return [*others, *(f"{AGAINST}={name}" for name in names)]


def value_of_against(words: Sequence[str]) -> str:
    return next((word.partition("=")[2] for word in words if word.startswith(f"{AGAINST}=")), "")


def split_files(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files named with `--with`, without duplicates, and all other arguments.

    Raises:
        UserError: `--with` has no file.
    """
    files, others = take_option(
        words, OPTION, f"needs a file of your own masks, scores, forms or metrics, such as {OPTION} mine.py"
    )
    return list(dict.fromkeys(files)), others


def fingerprint(file: str | Path) -> str:
    """Return a hash of a code file, or an empty string if it cannot be read; the file is not run.

    The hash covers the file and all files that it imports from its own folder, directly or indirectly.
    """
    try:
        first = Path(file).resolve()
        hashes = {path: hashlib.sha256(machine.read(path)).hexdigest() for path in list_code_files(first)}
    except (OSError, ValueError):
        return ""
    if len(hashes) == 1:
        return hashes[first]
    lines = (f"{digest}  {path.relative_to(first.parent).as_posix()}\n" for path, digest in hashes.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def file_of_function(name: Any) -> str:
    """Return the file in a name such as `mine.py:attention`, or an empty string if the name has none."""
    file = name.rpartition(":")[0] if isinstance(name, str) else ""
    return file if file.endswith(".py") else ""


def fingerprint_of_function(name: Any) -> str:
    return fingerprint(file_of_function(name))


def list_code_files(first: Path) -> list[Path]:
    """Return a file, followed by the files that it imports from its own folder, in sorted order.

    Indirect imports count too, and an imported package counts with all its files. attn_exp is left out, even if its
    checkout is in that folder. For an installed file, only the file itself is returned.
    """
    home, files, unread = first.parent, {first}, [first]
    while unread and home.name not in ("site-packages", "dist-packages"):
        roots = {name.partition(".")[0] for name in list_imports(unread.pop())} - {THIS_PACKAGE}
        paths = {path for root in roots for path in (home / f"{root}.py", *(home / root).rglob("*.py"))}
        new = {path for path in paths if path.is_file() and path.resolve().is_relative_to(home)} - files
        files |= new
        unread += new
    return [first, *sorted(files - {first})]


def list_imports(path: Path) -> Iterator[str]:
    """Yield the full name of each import anywhere in a file; nothing if the file is not valid Python."""
    try:
        nodes = [*ast.walk(ast.parse(machine.read(path, MOST_CODE)))]
    except (OSError, SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in nodes:
        if isinstance(node, ast.ImportFrom) and node.level <= 1 and node.module:
            yield node.module
        elif isinstance(node, ast.Import) or (isinstance(node, ast.ImportFrom) and node.level == 1):
            yield from (alias.name for alias in node.names)


@dataclass(frozen=True)
class OwnFunction:
    """A user's function.

    - `file`: the file that defines it, or an empty string. `sha256`: the fingerprint of that file.
    - `target`: what the user wrote, such as `mine.py:attention`; empty if they passed the function itself.
    """

    function: Any
    name: str
    file: str
    sha256: str
    target: str = ""


def find_function(target: str, imported: Mapping[str, ModuleType] | None = None) -> OwnFunction:
    """Import and return the function that `file.py:function` or `package.module:function` names.

    Modules in `imported` (by file or module name) are not imported again.

    Raises:
        UserError: there is no such file, module or name, or it cannot be imported.
    """
    source, _, name = target.rpartition(":")
    if not source or not name:
        raise UserError(
            f"{target}: expected a file and a function, such as mine.py:attention, or package.module:function"
        )
    module = (imported or {}).get(source) or module_of_functions(source)
    function = module
    with unreadable(target):
        for attribute in name.split("."):
            if not hasattr(function, attribute):
                callables = [
                    word for word, member in vars(module).items() if callable(member) and not word.startswith("_")
                ]
                raise UserError(unknown(name, callables[:12], f"function of {source}"))
            function = get_bound(function, attribute)
        if not callable(function) and type(function).__module__ in ("builtins", "numpy", "torch"):
            raise UserError(f"{target} has type {type(function).__name__}; expected a function")
        return function_from(function, name, getattr(module, "__file__", None))


def get_bound(owner: Any, name: str) -> Any:
    """Return an attribute; a method of a class is bound to a new object, if creating one needs no arguments."""
    if inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, name, None)):
        with suppress(Exception):
            return getattr(owner(), name)
    return getattr(owner, name)


@contextmanager
def unreadable(what: str, verb: str = "read") -> Iterator[None]:
    """Report any error in one line while user code is imported, or its attributes are read (which may run code).

    Raises:
        UserError: the code raised an error; an OwnCodeError if it tried to end the process.
        FaultError: an internal error occurred.
    """
    try:
        with guard_process():
            yield
    except UserError:
        raise
    except LeftError as error:
        raise OwnCodeError(f"{what} {error} while it was {verb}") from error
    except Exception as error:
        if is_fault(error):
            raise FaultError(fault_line(error)) from error
        raise UserError(f"{what} cannot be {verb}: {error_line(error)}") from error


def describe_function(function: Any) -> OwnFunction:
    kind = type(function).__name__
    name = getattr(function, "__name__", kind)
    file = getattr(getattr(function, "__code__", None), "co_filename", None)
    return function_from(function, name if isinstance(name, str) else kind, file)


def function_from(function: Any, name: str, file: Any) -> OwnFunction:
    path = file if isinstance(file, str) and os.path.isfile(file) else ""
    return OwnFunction(function, name, path, fingerprint(path))


OWN = "__attn_exp_own__"
"""Attribute of modules that were imported here from a file; a second file of the same name may replace them."""


def module_of_functions(source: str) -> ModuleType:
    """Import a file, such as `mine.py`, or a module on the path, such as `package.module`.

    Raises:
        UserError: it does not exist, or cannot be imported.
        FaultError: an internal error occurred.
    """
    path = Path(source)
    if source.endswith(".py"):
        packages = path.resolve().parent.relative_to(import_root(path)).parts
        # a module name must not begin with a digit
        return module_of_file(path, ".".join([*packages, re.sub(r"^(?=\d)", "_", path.stem)]))
    sys.path[:] = dict.fromkeys([*sys.path, os.getcwd()])
    with unreadable(source, "imported"):
        return importlib.import_module(source)


def module_of_members(path: Path) -> ModuleType:
    """Import a file of members under a unique module name.

    Raises:
        UserError: there is no such file, or it cannot be imported.
    """
    digest = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:8]
    with chdir(os.curdir):  # undo any change of the working folder, which relative paths depend on
        return module_of_file(path, f"{MEMBERS}{path.stem}_{digest}")


def module_of_file(path: Path, name: str) -> ModuleType:
    """Import a user's file, which may itself import from its folder, its package and the working folder.

    Raises:
        UserError: there is no such file, or it cannot be imported.
        FaultError: an internal error occurred.
    """
    if path.suffix != ".py" or not os.path.isfile(path):  # isfile is False for an invalid path
        raise UserError(f"{path}: there is no such .py file")
    spec: Any = importlib.util.spec_from_file_location(name, path.absolute())
    module = importlib.util.module_from_spec(spec)
    vars(module)[OWN] = True
    folder, root = path.resolve().parent, import_root(path)
    sys.path[:] = dict.fromkeys([str(root), *sys.path, str(folder), os.getcwd()])
    forget_same_names(folder, root)
    with unreadable(str(path), "imported"):
        if hasattr(sys.modules.get(name, module), OWN):
            sys.modules[name] = module  # `inspect` and string annotations look it up there
        spec.loader.exec_module(module)
    return module


def import_root(path: Path) -> Path:
    """Return the folder that contains a file or, if the file is in a package, its top-level package."""
    return next(folder for folder in path.resolve().parents if not (folder / "__init__.py").is_file())


def forget_same_names(file_folder: Path, root: Path) -> None:
    """Remove modules from `sys.modules` that a user's file would import instead of its own modules of the same names.

    Its own modules are those of its top-level package or, if the file is in no package, the files beside it. Modules of
    the same names that were imported from elsewhere are removed, except installed ones. `file_folder` is the folder of
    the user's file, `root` its import root.
    """
    names = {*file_folder.relative_to(root).parts[:1]} or {file.stem for file in file_folder.glob("*.py")}
    for name in [name for name in sys.modules if name.partition(".")[0] in names - {THIS_PACKAGE}]:
        expected = root / name.partition(".")[0]  # the user's own package, or file without its suffix
        file = Path(getattr(sys.modules[name], "__file__", None) or expected).with_suffix("")
        if not any(file.is_relative_to(folder) for folder in (expected, sys.prefix, sys.base_prefix)):
            del sys.modules[name]


def error_line(error: BaseException) -> str:
    """Return the type of an error and the first line of its message; for UserError and LeftError, only the line."""
    lines = [line.strip() for line in re.sub(r"\x1b\[\d*m", "", str(error)).splitlines() if line.strip()]
    if isinstance(error, UserError | LeftError):
        return lines[0]
    if lines and lines[0].startswith("Exception encountered when calling"):  # Keras gives the reason on the next lines
        del lines[0]
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__
