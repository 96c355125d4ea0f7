"""Code of the user's own, from its name to a module: nothing else in this package imports any.

Only what the command line of now names is imported: a function, such as `variant.mine.form=mine.py:attention`, or a
file of members, `--with mine.py`. What YAML, a run or a sweep on disk says stays a plain text. A file is known by a
hash of it and of what it imports beside it, so that a run can say what code it ran.
"""

from __future__ import annotations

import ast
import hashlib
import importlib
import importlib.util
import os
import re
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, chdir, contextmanager, nullcontext, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from attn_exp import machine
from attn_exp.errors import (
    FaultError,
    OwnCodeError,
    UserError,
    fault_line,
    first_line,
    is_fault,
    unknown,
    words_of_error,
)
from attn_exp.own_imports import (
    add_to_path,
    find_above,
    keras_with_what_is_installed,
    nodes_of,
    package_of,
    run_packages,
    stand_for_packages,
)

FORM = re.compile(r"\+{0,2}variant\.([^.=]+)\.form=(.*)", re.DOTALL)
BETWEEN = re.compile(r"""[\[\]{},'"]""")
THIS_PACKAGE = __name__.partition(".")[0]
OPTION = "--with"
AGAINST = "--against"
"""What stands before the name of another implementation that the function is held against."""
MEMBERS = "_with_"
"""How the names of modules begin that files of members become."""


class Named(str):
    """The name of code that the user wrote on the command line now, or in Python; a plain text names none."""

    __slots__ = ()


class LeftError(Exception):
    """Code of others wanted to end the process: it called `sys.exit`, or raised something else that is no error."""


@contextmanager
def held() -> Iterator[None]:
    """Hold on to this process while code of others runs, or while what it returned is read.

    What it prints goes to stderr, as stdout is ours. What it raises to end the process is an error.

    Raises:
        LeftError: it raised what is no `Exception`, such as SystemExit; Ctrl-C alone stays what it is.
    """
    numpy = sys.modules.get("numpy")
    how_it_takes_overflows = nullcontext() if numpy is None else numpy.errstate()
    try:
        with redirect_stdout(sys.stderr), how_it_takes_overflows:
            yield
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise LeftError(f"ended without an answer ({error_line(error)})") from error


def staying_here() -> AbstractContextManager[None]:
    """Come back to the working folder of now: code of others may go elsewhere, and our names of files start here."""
    return chdir(os.curdir)


def is_code(form: Any) -> bool:
    """Say whether a form is code of the user's own, and no form of the project's."""
    return isinstance(form, str) and ":" in form


def any_named(forms: Iterable[str]) -> bool:
    """Say whether one of these forms is code that may be run: the user named it on the command line of now."""
    return any(isinstance(form, Named) for form in forms)


def variants_of_code(words: Iterable[str]) -> list[str]:
    """Return the variants whose forms these words name as code."""
    matches = [FORM.fullmatch(word) for word in words]
    return [match[1] for match in matches if match and is_code(match[2])]


def variants_not_listed(words: Sequence[str], known: Iterable[str]) -> list[str]:
    """Return the variants that get code for a form, have no YAML, and stand in no list of variants."""
    listed = " ".join(word for word in words if word.lstrip("+").startswith("variant="))
    named = {*known, *re.findall(r"[\w-]+", listed)}
    return [name for name in variants_of_code(words) if name not in named]


def mark_named(settings: Mapping[str, Any], words: Sequence[str]) -> dict[str, Any]:
    """Return plain settings in which the code that these words name is `Named`."""
    chosen = settings.get("variant")
    if not isinstance(chosen, Mapping):
        return dict(settings)
    typed, variants = texts_about_variants(words), dict(chosen)
    for name, variant in chosen.items():
        form = variant.get("form") if isinstance(variant, Mapping) else None
        if is_code(form) and form in typed:
            variants[name] = {**variant, "form": Named(form)}
    return {**settings, "variant": variants}


def texts_about_variants(words: Sequence[str]) -> set[str]:
    """Return every text that the words about variants may give as a form."""
    texts: set[str] = set()
    for word in words:
        key, _, value = word.lstrip("+").partition("=")
        if key.partition(".")[0] == "variant":
            parts = [part.strip() for part in BETWEEN.split(value)]
            texts |= {value.strip("'\""), *parts, *(part.removeprefix("form:").strip() for part in parts)}
    return texts


def take_option(words: Sequence[str], option: str, needs: str) -> tuple[list[str], list[str]]:
    """Return the values of an option, each in the same word or the next, and all other words.

    Raises:
        UserError: the option without a value.
    """
    values, others, waiting = list[str](), list[str](), iter(words)
    for word in waiting:
        name, equals, value = word.partition("=")
        if name != option:
            others.append(word)
            continue
        value = value if equals else next(waiting, "")
        if not value or value.startswith("-"):
            raise UserError(f"{option} {needs}")
        values.append(value)
    return values, others


def with_other_joined(words: Sequence[str]) -> list[str]:
    """Return the words with the name of another implementation in one word with its option, as all options are.

    Raises:
        UserError: the option has no name after it, or stands there twice.
    """
    names, others = take_option(
        words, AGAINST, "needs a function, such as torch.nn.functional:scaled_dot_product_attention"
    )
    if len(names) > 1:
        raise UserError(f"{AGAINST} is given twice; two implementations are compared at a time")
    return [*others, *(f"{AGAINST}={name}" for name in names)]


def other_of(words: Sequence[str]) -> str:
    """Return the name of the implementation that the function is held against, or nothing."""
    return next((word.partition("=")[2] for word in words if word.startswith(f"{AGAINST}=")), "")


def split_files(words: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the files that the words of a command line name with `--with`, each once, and all other words.

    Raises:
        UserError: `--with` and no file.
    """
    needs = f"names a file of your own masks, scores, forms or metrics: {OPTION} mine.py"
    files, others = take_option(words, OPTION, needs)
    return list(dict.fromkeys(files)), others


def fingerprint(file: str | Path) -> str:
    """Return a hash of a file of code, which is read and never run; nothing where it cannot be read.

    It is that of its bytes, or, where it imports files or packages that lie in its own folder, of all of them together.
    """
    try:
        first = Path(file).resolve()
        helpers = files_imported_beside(first)
        hashes = {path: hashlib.sha256(machine.read(path)).hexdigest() for path in (first, *helpers)}
    except (OSError, ValueError):
        return ""
    if not helpers:
        return hashes[first]
    lines = (f"{digest}  {path.relative_to(first.parent).as_posix()}\n" for path, digest in hashes.items())
    return hashlib.sha256("".join(lines).encode()).hexdigest()


def fingerprint_of_function(name: Any) -> str:
    """Return the hash of the file that the name of a function says, such as `mine.py:attention`; else nothing."""
    place = name.rpartition(":")[0] if isinstance(name, str) else ""
    return fingerprint(place) if place.endswith(".py") else ""


def files_imported_beside(first: Path) -> list[Path]:
    """Return the files in a file's folder, and in packages there, that it imports, or that those import, in order.

    This package is none of them: in a checkout it may lie there too.
    """
    import sysconfig  # noqa: PLC0415 - most runs have no code of the user's own

    home, found, waiting, seen = first.parent, {first}, [first], {THIS_PACKAGE}
    if home in {Path(place).resolve() for place in sysconfig.get_paths().values()}:
        return []  # what is installed beside a file is not its helper
    while waiting:
        for root in {name.partition(".")[0] for name in names_imported(waiting.pop())} - seen:
            seen.add(root)
            new = {path.resolve() for path in files_of_module(home, root)} - found
            waiting += (inside := {path for path in new if path.is_relative_to(home)})
            found |= inside
    return sorted(found - {first})


def files_of_module(home: Path, root: str) -> list[Path]:
    """Return the files of a module below a folder: one, or all of a package; none where it is not there."""
    package, module = home / root, home / f"{root}.py"
    if package.is_dir():
        is_package = (package / "__init__.py").is_file() or any(package.glob("*.py"))
        return [path for path in package.rglob("*.py") if path.is_file()] if is_package else []
    return [module] if module.is_file() else []


def names_imported(path: Path) -> Iterator[str]:
    """Yield the full names of what a file imports, wherever in it; nothing where it is no Python."""
    for node in nodes_of(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level <= 1:
            yield from [node.module] if node.module else [alias.name for alias in node.names]


@dataclass(frozen=True)
class OwnFunction:
    """A function of the user: its name, the file it comes from, a hash of that file's text, and how it was named."""

    function: Any
    name: str
    file: str
    sha256: str
    target: str = ""


def find_function(target: str, imported: Mapping[str, ModuleType] | None = None) -> OwnFunction:
    """Import and return the function that `file.py:function` or `package.module:function` names.

    What is `imported` already, by its place, is not imported again.

    Raises:
        UserError: there is no such file, module or name, or it cannot be imported.
    """
    place, colon, name = target.rpartition(":")
    if not colon or not place or not name or set(name) & set("/\\"):  # the colon of a drive is not that of a name
        raise UserError(
            f"{target}: expected a file and a function, such as mine.py:attention, or package.module:function"
        )
    module = (imported or {}).get(place) or module_of_functions(place)
    function: Any = module
    with unreadable(target):
        file = getattr(module, "__file__", None)
        for part in name.split("."):
            if not hasattr(function, part):
                known = [word for word in vars(module) if not word.startswith("_") and callable(vars(module)[word])]
                raise UserError(unknown(name, known[:12], f"function of {place}"))
            function = method_of(function, part)
    if not callable(function) and not has_methods(function):
        raise UserError(f"{target} is a {type(function).__name__}; expected a function")
    return function_from(function, name, file)


def has_methods(one: Any) -> bool:
    """Say whether something is an object of a class of somebody's own with methods, one of which may be attention."""
    home = type(one).__module__.partition(".")[0]
    methods = (name for name, value in vars(type(one)).items() if callable(value) and not name.startswith("_"))
    return home not in NO_HOMES and any(methods)


NO_HOMES = ("builtins", "types", "numpy", "torch", "jax", "jaxlib", "keras")
"""Whose objects are numbers, texts, arrays and modules: what is no function there is none of somebody's own."""


def method_of(owner: Any, name: str) -> Any:
    """Return an attribute; a method of a class is that of an object, where one can be made of nothing."""
    import inspect  # noqa: PLC0415 - few names have several parts

    if inspect.isclass(owner) and inspect.isfunction(inspect.getattr_static(owner, name, None)):
        with suppress(Exception):
            return getattr(owner(), name)
    return getattr(owner, name)


@contextmanager
def unreadable(name: str) -> Iterator[None]:
    """Say in a line that an object of others cannot be read: each attribute of it may be code.

    Raises:
        UserError: whatever was raised meanwhile.
    """
    try:
        with held():
            yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"{name} cannot be read: {error_line(error)}") from error


def function_at_hand(function: Any) -> OwnFunction:
    """Return a function that is at hand, with the file that it comes from where that is known."""
    kind = type(function).__name__
    with unreadable(f"a {kind}"):
        name, file = getattr(function, "__name__", kind), getattr(function, "__code__", None)
        file = getattr(file, "co_filename", None)
    return function_from(function, name if isinstance(name, str) else kind, file)


def function_from(function: Any, name: str, file: Any) -> OwnFunction:
    """Return the function with the hash of its file, or none where it has no file."""
    place = file if isinstance(file, str) and os.path.isfile(file) else ""
    return OwnFunction(function, name, place, fingerprint(place) if place else "")


OWN = "__attn_exp_own__"
"""What marks modules that were made of files here: one of the same name may take their place."""


def module_of_functions(place: str) -> ModuleType:
    """Import a file, `mine.py`, or a module that Python finds, `package.module`.

    Raises:
        UserError: there is none, or it cannot be imported.
        FaultError: an error of our own.
    """
    path = Path(place) if place.endswith(".py") else None
    if path is not None and not os.path.isfile(path):  # False for a name that no system can hold
        raise UserError(f"{path}: no such file")
    if path is None and (os.path.isfile(place) or not all(part.isidentifier() for part in place.split("."))):
        raise UserError(f"{place}: expected a Python file, such as mine.py, or a module, such as package.module")
    try:
        if path is None:
            add_to_path(Path.cwd())
            with held(), keras_with_what_is_installed():
                return importlib.import_module(place)
        packages = package_of(path)
        stand_for_packages(path, packages)
        name = re.sub(r"^(?=\d)", "_", path.stem)  # annotations are looked up by it, and no name begins with a digit
        name = ".".join((*packages, name))
        module = prepared_module(path, name, path.resolve().parent)
        vars(module)[OWN] = True
        if packages or hasattr(sys.modules.get(name, module), OWN):
            sys.modules[name] = module  # code is read from the file of the module of its name
        run_with_what_it_imports(module, path, packages)
    except LeftError as error:
        raise OwnCodeError(f"{path or place} {error}, as it was imported") from error
    except Exception as error:
        if is_fault(error):
            raise FaultError(fault_line(error)) from error
        raise UserError(f"{path or place} cannot be imported: {error_line(error)}") from error
    return module


def module_of_members(path: Path) -> ModuleType:
    """Import a file of members under a name that no other module has.

    Raises:
        UserError: there is no such file, or it cannot be imported.
    """
    if not os.path.isfile(path) or path.suffix != ".py":
        raise UserError("no such file" if not os.path.exists(path) else "not a Python file, such as mine.py")
    place = path.absolute()
    digest = hashlib.sha256(str(place).encode("utf-8", "surrogateescape")).hexdigest()[:8]
    module = prepared_module(place, f"{MEMBERS}{path.stem}_{digest}", place.parent)
    sys.modules[module.__name__] = module  # settings are read by their annotations, which are looked up there
    try:
        with staying_here():
            run_module(module)
    except Exception as raised:
        sys.modules.pop(module.__name__, None)
        if is_fault(raised):
            raise FaultError(fault_line(raised)) from raised
        error = raised.__cause__ if isinstance(raised, LeftError) and raised.__cause__ else raised
        line = f", line {error.lineno}" if isinstance(error, SyntaxError) and error.filename == str(place) else ""
        text = error.msg if isinstance(error, SyntaxError) else first_line(error)
        raise UserError(f"cannot be imported: {type(error).__name__}: {text}{line}") from error
    return module


def prepared_module(path: Path, name: str, folder: Path) -> ModuleType:
    """Return an empty module for a file, which can import what lies in that folder; nothing of it has run."""
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None  # every file that ends in .py has one
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    return importlib.util.module_from_spec(spec)


def run_with_what_it_imports(module: ModuleType, path: Path, packages: tuple[str, ...]) -> None:
    """Run the file of a module, and again where what it could not import is found in its project."""
    while True:
        try:
            return run_module(module)
        except ImportError as error:
            above = isinstance(error, ModuleNotFoundError) and error.name and find_above(path, error.name)
            if not above and not run_packages(packages):
                raise


def run_module(module: ModuleType) -> None:
    """Run the file of a module."""
    assert module.__spec__ is not None and module.__spec__.loader is not None
    with held(), keras_with_what_is_installed():
        module.__spec__.loader.exec_module(module)


def error_line(error: BaseException) -> str:
    """Return the kind of an error and the first line that it says; of our own, the line alone."""
    lines = words_of_error(error).splitlines()
    if isinstance(error, UserError | LeftError):
        return lines[0]
    if lines and lines[0].startswith("Exception encountered when calling"):  # Keras says below what was wrong
        lines = [re.sub(r"\x1b\[\d*m", "", line).strip() for line in lines[1:]]
        lines = [line for line in lines if line]
    return f"{type(error).__name__}: {lines[0]}"[:200] if lines else type(error).__name__
