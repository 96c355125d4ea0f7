"""`attn-exp check` and `attn-exp explain`: read the command line, and format the verdict as text or JSON.

`checked` runs in the child process of `in_child.py`, and returns a reply for its parent: a verdict, why the function
could not be called, or the names in a whole file. `explained` needs no child process, because it runs no user code.
If a target cannot be called, the output is a draft of a factory, in which the user replaces each `...`.
"""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from types import ModuleType
from typing import Any

from attn_exp.config.compose import compose_config
from attn_exp.diagnosis.asking.names import source_with_helpers
from attn_exp.diagnosis.asking.request import Request, parse_request
from attn_exp.diagnosis.bind.factory import describe_factory, is_factory
from attn_exp.diagnosis.classroom.numbers import explain
from attn_exp.diagnosis.judging.against import against
from attn_exp.diagnosis.judging.check import check
from attn_exp.diagnosis.judging.unasked import POINTS, arguments_of
from attn_exp.errors import EXIT_CODES, NOT_VERIFIED, UNSHOWN, OwnCodeError, UncalledError, UserError, unknown
from attn_exp.experiment.verdict import Verdict, format_details, format_summary, make_unfinished
from attn_exp.own_code import (
    AGAINST,
    OwnFunction,
    describe_function,
    find_function,
    module_of_functions,
    unreadable,
    value_of_against,
)

FLAGS = ("--json", "--quick", "--verbose")
FILES: dict[str, ModuleType] = {}
"""Modules by path: a child process that checks every function in a file imports the file only once."""
ANSWER = "answer."
"""Prefix of arguments that give the numbers of a stage, such as `answer.weights=mine.csv`."""
FIRST_CALLS = 2
"""Number of calls that restart the timeout: the first comes after imports and building, and may itself compile."""
SOFTMAX = re.compile(r"\b(log_?)?softmax\b|\blogsumexp\b|\bexp2?\b")
"""Matches code that turns scores into weights."""
PRODUCT = re.compile(r"\b(matmul|einsum|b?mm|baddbmm|dot|dot_general|tensordot|vecdot)\b|\s@\s")
"""Matches code that multiplies arrays."""
FUSED_CALL = re.compile(r"\b(\w*(?:attention|sdpa|attn)\w*)\(", re.IGNORECASE)
"""Matches a call of fused attention."""
MOST_WRAPPERS = 8
"""Maximum number of wrappers, such as decorators and partials, to remove from a callable."""


def checked(words: Sequence[str], tell: Callable[[Any], None]) -> dict[str, Any]:
    """Check the function named by the first argument in this child process, and return the reply.

    The `text` of the reply is the output; `uncalled` is the reason why the function could not be called. For a whole
    file, the reply lists the names to check, and tells which of these may be attention. `tell` is called before each
    step, so that the parent knows which step was running if this process dies.

    Raises:
        UserError: a function or setting does not exist, or a check cannot use a setting.
    """
    flags = {word for word in words if word.startswith("--")}
    other = value_of_against(words)
    for flag in flags - {*FLAGS, f"{AGAINST}={other}"}:
        raise UserError(unknown(flag, (*FLAGS, AGAINST), "option"))
    target, *settings = [word for word in words if not word.startswith("--")] or [""]
    calls = count(1)
    request = replace(parse_request(settings), tell=lambda call: tell(
        {"doing": f"while it was called with {call}", "asking": next(calls) <= FIRST_CALLS}
    ))  # fmt: skip
    if target.endswith(".py"):
        return reply_with_names(target, request, tell)
    functions, verdict = import_functions(list(filter(None, (target, other))), request, tell)
    if verdict is None:
        tell({"doing": "while its signature was read"})
        try:
            verdict = check_or_compare(functions, request, "--quick" in flags)
        except UncalledError as error:
            return reply_uncalled(functions[-1], str(error), words)
    return reply_to(verdict, words, target, functions)


def reply_with_names(file: str, request: Request, tell: Callable[[Any], None]) -> dict[str, Any]:
    """Import a whole file and return its names; the parent then checks them one by one."""
    tell({"asked": request.words, "doing": f"while {file} was imported"})
    module = FILES[file] = module_of_functions(file)
    with unreadable(file):
        names = {name: may_be_attention(value, module) for name, value in list_callables(module)}
    return {"names": names, "asked": request.words, "uncalled": ""}


def import_functions(
    targets: Sequence[str], request: Request, tell: Callable[[Any], None]
) -> tuple[list[OwnFunction], Verdict | None]:
    """Import the functions; if user code raises an error, also return a verdict that quotes the first error."""
    functions, verdict = list[OwnFunction](), None
    for target in targets:
        file, _, name = target.rpartition(":")
        importing = f"while {file} was imported"
        tell({"asked": request.words, "doing": importing})
        try:
            functions.append(replace(find_function(target, FILES), target=target))
        except OwnCodeError as error:
            verdict = verdict or make_unfinished(name, f"it {error.__cause__} {importing}", request.words)
    return functions, verdict


def reply_to(
    verdict: Verdict, words: Sequence[str], target: str, functions: Sequence[OwnFunction] = ()
) -> dict[str, Any]:
    why = f"{verdict.name} could not be called {verdict.uncalled}" if verdict.uncalled else ""
    if why and "--json" not in words and len(functions) == 1:
        return reply_uncalled(functions[0], why, words)
    text = "" if why and "--json" not in words else format_verdict(verdict, words, target)
    return {"text": text, "code": EXIT_CODES[verdict.outcome], "uncalled": why, "verdict": verdict.plain()}


def reply_without_verdict(words: Sequence[str], target: str, reason: str, asked: str) -> dict[str, Any]:
    """Return the reply for a check whose process ended without a verdict."""
    return reply_to(make_unfinished(target.rpartition(":")[2], reason, asked), words, target)


def reply_uncalled(function: OwnFunction, why: str, words: Sequence[str]) -> dict[str, Any]:
    """Return a reply without verdict, with the draft of a factory that would make the function callable."""
    text = "" if why.startswith("device=") or is_factory(function.function) else describe_factory(function, why)
    if "--json" in words:
        fields = {"name": function.name, "outcome": NOT_VERIFIED, "reason": why, "uncalled": why, "wrapper": text}
        text = json.dumps(fields, ensure_ascii=False, indent=1)
    return {"text": text, "uncalled": why, "verdict": None}


def check_objects(function: Any, other: Any, words: Sequence[str], quick: bool) -> Verdict:
    """Check a function, given as an object or by name, or compare it with another function."""
    functions = [
        replace(find_function(given), target=given) if isinstance(given, str) else describe_function(given)
        for given in (function, other) if given is not None
    ]  # fmt: skip
    return check_or_compare(functions, parse_request(words), quick)


def check_or_compare(functions: Sequence[OwnFunction], request: Request, quick: bool) -> Verdict:
    """Check one function, or compare two.

    Raises:
        UserError: a name in `ignore` is unknown: it is neither an argument nor an open point, and does not occur in
            the code, as the name of a module or buffer would. Never raised while a whole file is checked.
    """
    arguments = [name for own in functions for name in arguments_of(own.function)]
    for name in request.ignore if arguments and not FILES else ():
        if name not in (*arguments, *POINTS) and not any(
            re.search(rf"\b{re.escape(name)}\b", source_with_helpers(own.function, classes=True)) for own in functions
        ):
            raise UserError(unknown(name, arguments, f"argument of {functions[0].name} in ignore="))
    if len(functions) == 1:
        return check(functions[0], request, quick)
    return against(functions[0], functions[1], request, quick)


def format_verdict(verdict: Verdict, words: Sequence[str], name: str = "") -> str:
    if "--json" not in words:
        return (format_details if "--verbose" in words else format_summary)(verdict, name)
    text = json.dumps(verdict.plain(), ensure_ascii=False, indent=1)
    return UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)  # escape control characters


def explained(words: Sequence[str]) -> tuple[str, int]:
    """Explain numbers given as `answer.weights=mine.csv`; return the output and the exit code.

    Raises:
        UserError: the numbers cannot be read or do not fit the run, or an argument is not a setting of a run.
    """
    for flag in {word for word in words if word.startswith("--")} - {"--json"}:
        raise UserError(unknown(flag, ("--json",), "option"))
    settings, answers = split_answers([word for word in words if not word.startswith("--")])
    verdict = explain(compose_config(settings, []), answers, " ".join(settings) or "the default settings")
    return format_verdict(verdict, [*words, "--verbose"]), EXIT_CODES[verdict.outcome]


def split_answers(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Split arguments into the settings of a run and the answers by stage.

    Raises:
        UserError: a stage is given twice.
    """
    answers = [word.removeprefix(ANSWER).partition("=") for word in words if word.startswith(ANSWER)]
    stages = [stage for stage, _, _ in answers]
    for stage in stages:
        if stages.count(stage) > 1:
            raise UserError(f"{ANSWER}{stage} is given twice")
    return [word for word in words if not word.startswith(ANSWER)], {stage: value for stage, _, value in answers}


# A whole file


def list_callables(module: ModuleType) -> Iterator[tuple[str, Any]]:
    """Yield the callables defined in a file, in file order, and the static methods of its classes."""
    yielded = list[Any]()  # a list, because user objects may have no hash
    for name, value in list(vars(module).items()):
        if name.startswith("__") or any(value is other for other in yielded) or find_origin(value, module) is None:
            continue
        yielded.append(value)
        yield name, value
        for method_name, method in vars(value).items() if inspect.isclass(value) else ():
            if isinstance(method, staticmethod) and not method_name.startswith("__"):
                yield f"{name}.{method_name}", method.__func__


def find_origin(value: Any, module: ModuleType) -> Any:
    """Return the function or class that a callable wraps; None if it is not defined in this file.

    For an object, return its class. A class without `__call__` gives None, because it computes nothing by itself.
    """
    home = module.__name__
    for _ in range(MOST_WRAPPERS if callable(value) else 0):
        if inspect.isclass(value) and not any("__call__" in vars(base) for base in value.__mro__[:-1]):
            return None
        if getattr(value, "__module__", None) == home:
            return value if inspect.isclass(value) or inspect.isfunction(value) else type(value)
        value = getattr(value, "func", None) or getattr(value, "__wrapped__", None) or getattr(value, "py_func", None)
    return None


def may_be_attention(value: Any, module: ModuleType) -> bool:
    """Return whether the code of a callable may be attention: it has a softmax and a product, or calls fused attention.

    The code of functions and base classes that it uses from the same file counts too.
    """
    code = source_with_helpers(find_origin(value, module))
    is_fused = any(name not in vars(module) and f"def {name}(" not in code for name in FUSED_CALL.findall(code))
    return bool(SOFTMAX.search(code) and PRODUCT.search(code)) or is_fused
