"""`attn-exp check` and `attn-exp explain`: the words of a command line, and the verdict as text or JSON.

Of what cannot be called a wrapper is printed, to be completed: what is known is filled in, the rest is dots.
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any

from attn_exp.config.compose import composed
from attn_exp.diagnosis.asking.offer import is_required, parameters_of
from attn_exp.diagnosis.asking.request import Request, understood
from attn_exp.diagnosis.asking.sides import side_of_name
from attn_exp.diagnosis.calling.neutral import is_known, sources_of
from attn_exp.diagnosis.classroom.explain import explain
from attn_exp.diagnosis.judging.check import check
from attn_exp.diagnosis.making.told_sizes import MADE_WITH, SIZE, is_module
from attn_exp.diagnosis.matrices.module_sizes import Sizes
from attn_exp.diagnosis.whole_file import names_in_file
from attn_exp.errors import UNSHOWN, OwnCodeError, UncalledError, UserError, unknown
from attn_exp.experiment.verdict import Verdict, unfinished
from attn_exp.own_code import AGAINST, OwnFunction, find_function, module_of_functions, other_of

FLAGS = ("--json", "--quick")
FILES: dict[str, ModuleType] = {}
"""The files that this process, a child, was asked for as a whole: they are imported once, and not for each name."""
ANSWER = "answer."
"""What a word begins with that gives the numbers of a stage."""


def checked(words: Sequence[str], tell: Callable[[Any], None]) -> dict[str, Any]:
    """Check the function that the first word names, in the child that this is: return what there is to say of it.

    `text` is what to print, and `uncalled` why the function could not be called, where it could not. Of a file alone it
    returns the names that may be asked. `tell` hears what is about to happen, so that somebody knows it if this process
    ends.

    Raises:
        UserError: a function or a setting that is not there, or one that cannot be asked of a function.
    """
    flags, other = {word for word in words if word.startswith("--")}, other_of(words)
    for flag in flags - {*FLAGS, f"{AGAINST}={other}"}:
        raise UserError(unknown(flag, (*FLAGS, AGAINST), "option"))
    target, *rest = [word for word in words if not word.startswith("--")] or [""]
    question = replace(understood(rest), tell=lambda call: tell({"doing": f"while it was called with {call}"}))
    if target.endswith(".py"):  # a whole file: its names, of which each is asked in its turn
        tell({"asked": question.words, "doing": f"while {target} was imported"})
        FILES[target] = module_of_functions(target)
        return {"names": names_in_file(target, FILES[target]), "asked": question.words}
    found = list[OwnFunction]()
    verdict = None
    for name in filter(None, (target, other)):
        importing = f"while {name.rpartition(':')[0]} was imported"
        tell({"asked": question.words, "doing": importing})
        try:
            found.append(replace(find_function(name, FILES), target=name))
        except OwnCodeError as error:
            verdict = verdict or unfinished(name.rpartition(":")[2], f"{error.__cause__} {importing}", question.words)
    if verdict is None:
        tell({"doing": "while it was read what it takes"})
        try:
            verdict = check_or_compare(found, question, "--quick" in flags, progress())
        except UncalledError as error:
            return uncalled(found[-1], str(error), words)
        if verdict.uncalled and "--json" not in words and len(found) == 1:
            return uncalled(found[0], f"{verdict.name} could not be called {verdict.uncalled}", words)
    text = shown(verdict, words)
    return {"text": text, "passed": verdict.passed, "name": verdict.name, "uncalled": verdict.uncalled,
            "verdict": verdict.plain()}  # fmt: skip


def uncalled(own: OwnFunction, why: str, words: Sequence[str]) -> dict[str, Any]:
    """Return what there is to say of a function that could not be called: why, and a wrapper to be completed."""
    text = wrapper_of(own)
    if "--json" in words:
        text = json.dumps({"name": own.name, "uncalled": why, "wrapper": text}, ensure_ascii=False, indent=1)
    return {"text": text, "passed": False, "name": own.name, "uncalled": why, "refused": why, "verdict": None}


def check_or_compare(
    found: Sequence[OwnFunction], question: Request, quick: bool, tell: Callable[[str], None] = lambda rung: None
) -> Verdict:
    """Check one function, or hold two against each other."""
    if len(found) == 1:
        return check(found[0], question, quick, tell)
    from attn_exp.diagnosis.pairs.against import against  # noqa: PLC0415 - few checks name two

    return against(found[0], found[1], question, quick, tell)


def shown(verdict: Verdict, words: Sequence[str]) -> str:
    """Return a verdict as text, or as JSON where the words ask for it."""
    if "--json" not in words:
        return str(verdict)
    text = json.dumps(verdict.plain(), ensure_ascii=False, indent=1)
    return UNSHOWN.sub(lambda match: f"\\u{ord(match[0]):04x}", text)  # as JSON writes what no terminal should obey


def explained(words: Sequence[str]) -> tuple[str, bool]:
    """Explain the numbers that words such as `answer.weights=mine.csv` name; return what to print, and whether right.

    Raises:
        UserError: numbers that cannot be read or have no place in the run, or words that no run would take.
    """
    flags = {word for word in words if word.startswith("--")}
    for flag in flags - {"--json"}:
        raise UserError(unknown(flag, ("--json",), "option"))
    settings, answers = apart([word for word in words if not word.startswith("--")])
    verdict = explain(composed(settings, []), answers, " ".join(settings) or "the run of no settings")
    return shown(verdict, words), verdict.passed


def apart(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    """Return the settings of a run and the answers by stage.

    Raises:
        UserError: a stage is given twice.
    """
    answers: dict[str, str] = {}
    for word in words:
        if word.startswith(ANSWER):
            stage, _, value = word.removeprefix(ANSWER).partition("=")
            if stage in answers:
                raise UserError(f"{ANSWER}{stage} is given twice")
            answers[stage] = value
    return [word for word in words if not word.startswith(ANSWER)], answers


def progress() -> Callable[[str], None]:
    """Return what hears how far a check is: it writes one line on a terminal, and wipes it at the end."""
    if sys.stderr is None or sys.stderr.closed or not sys.stderr.isatty():
        return lambda rung: None

    def tell(rung: str) -> None:
        text = f"asking: {rung}" if rung else ""
        with suppress(OSError, ValueError):  # somebody closed it
            print(f"\r{text:60}\r", end="", file=sys.stderr, flush=True)

    return tell


HINT = "# complete the dots, save this as wrapper.py beside it, and: attn-exp check wrapper.py:{}"
PLAIN = ("None", "False", "True", "0", "1", "0.0", "1.0", "''", "{}", "-1")
"""Values that stand in a wrapper as they are."""


def wrapper_of(own: OwnFunction) -> str:
    """Return Python that makes a function of q, k and v of another, or a layer of x of another, to be completed.

    Nothing where it has no name.
    """
    place, _, name = own.target.rpartition(":")
    module = Path(place).stem if place.endswith(".py") else place
    if not module.replace(".", "").isidentifier():
        return ""
    first = name.partition(".")[0]
    if is_module(own.function):
        return "\n".join(of_layer(own, name, [f"from {module} import {first}"]))
    lines = [HINT.format("attention"), f"from {module} import {first}", ""]
    called = name
    try:
        parameters = parameters_of(own.function, own.name)
        if inspect.isclass(own.function):
            lines += [f"made = {name}({', '.join(value_of(given) for given in parameters if is_required(given))})", ""]
            called = "made"
            inner: Any = getattr(own.function, "forward", None) or own.function.__call__
            parameters = parameters_of(inner, own.name)[1:]
    except UserError:
        return ""
    arrays = iter("qkv")
    given = [value_of(one, next(arrays, "") if not is_known(one.name) or side_of_name(one.name) else "")
             for one in parameters if is_required(one)]  # fmt: skip
    lines += ["", "def attention(q, k, v):", f"    return {called}({', '.join(given)})"]
    return "\n".join(lines)


def of_layer(own: OwnFunction, name: str, imported: list[str]) -> list[str]:
    """Return the lines that let a layer be called with x alone; where it is a class, they make it as well."""
    made = inspect.isclass(own.function)
    base = name if made else f"type({name})"
    method = next(word for word in ("forward", "call", "__call__") if hasattr(own.function, word))
    forward = [given for given in parameters_of(getattr(own.function, method), own.name) if given.name != "self"]
    others = "".join(f", {given.name}=..." for given in forward[1:] if is_required(given))
    lines = [HINT.format("layer"), *imported, "", "", f"class Mine({base}):", f"    def {method}(self, x):"]
    lines += [f"        return super().{method}(x{others})", "", ""]
    if not made:
        return [*lines, f"layer = {name}", "layer.__class__ = Mine"]
    sizes = Sizes(SIZE * MADE_WITH, MADE_WITH, SIZE, MADE_WITH)
    needed = [given for given in parameters_of(own.function, own.name) if is_required(given)]
    values = [f"{given.name}={'...' if (size := sizes.value(given.name)) is None else size}" for given in needed]
    return [*lines, f"layer = Mine({', '.join(values)})"]


def value_of(given: inspect.Parameter, array: str = "") -> str:
    """Return what a parameter is given, with its name: one of the arrays, what its name says, or dots."""
    side = side_of_name(given.name)
    known = side if side in ("q", "k", "v") else "concatenate([q, k, v], -1)" if side == "qkv" else array
    if not known and is_known(given.name):
        text = sources_of(given)[0].text
        known = text if text in PLAIN or text.startswith(("q.", "k.", "len(")) else ""
    value = known or "..."
    return value if given.kind is given.POSITIONAL_ONLY else f"{given.name}={value}"
