"""What nothing would miss: python benchmarks/knockout.py [FOLDER ...] [--most 60] [--least 8] [--csv FILE]

Each FOLDER is one that `benchmarks/check.py --world` takes; the zoo's odd functions and its cheats are asked beside
them. A first pass notes which functions of `attn_exp/diagnosis` each case calls. Then every function that at most
`--most` cases call, and that may return nothing (an iterator, a tuple, a mapping, False or None), does so, one at a
time, in the cases that call it, and the cases whose outcome or names change are counted. At last all functions that
lost none are switched off together. The questions that are asked as a black box are left out: the cheats judge them.
"""

from __future__ import annotations

import argparse
import ast
import csv
import importlib
import json
import multiprocessing
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from itertools import groupby
from pathlib import Path
from types import CodeType
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import check as zoo  # beside this file
import world

ROOMS = Path(zoo.ROOT) / "attn_exp" / "diagnosis"
LEFT_OUT = ("classroom", "sheets", "calling/behaviour.py")
NOTHINGS: dict[str, Callable[..., Any]] = {
    **dict.fromkeys(("Iterator",), lambda *_, **__: iter(())),
    **dict.fromkeys(("Iterable", "tuple", "list", "Sequence"), lambda *_, **__: ()),
    **dict.fromkeys(("dict", "Mapping"), lambda *_, **__: {}),
    "set": lambda *_, **__: set(),
    "bool": lambda *_, **__: False,
    "None": lambda *_, **__: None,
}
"""What a function returns that finds nothing, by how its annotation begins."""
Key = tuple[str, int]
"""The file of a function and its first line, as its code has them."""
Case = tuple[str, Callable[[], tuple[int, str, str]]]


def mechanisms(least: int) -> Iterator[tuple[Key, str, int, str]]:
    """Yield key, module and name, statements and kind of nothing of each function that can be switched off."""
    for path in sorted(ROOMS.rglob("*.py")):
        place = path.relative_to(ROOMS).as_posix()
        for node in ast.parse(path.read_text()).body if not place.startswith(LEFT_OUT) else ():
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                kind = ast.unparse(node.returns)
                kind = "None" if kind.endswith("| None") else kind.partition("[")[0]
                size = sum(isinstance(one, ast.stmt) for one in ast.walk(node)) - 1
                first = min([node.lineno, *(one.lineno for one in node.decorator_list)])
                if kind in NOTHINGS and size >= least and "..., " not in kind:
                    yield (str(path), first), f"{place[:-3].replace('/', '.')}:{node.name}", size, kind


def switch_off(name: str, kind: str) -> None:
    """Have a function return nothing, wherever it was imported to."""
    module, _, function = name.partition(":")
    made = getattr(importlib.import_module(f"attn_exp.diagnosis.{module}"), function)
    made = getattr(made, "__wrapped__", made)
    made.__defaults__ = made.__kwdefaults__ = None
    made.__code__ = NOTHINGS[kind].__code__.replace(co_name=function)


def cases(folders: Sequence[Path]) -> Iterator[Case]:
    for folder in folders:
        with (folder / "truth.csv").open(newline="", encoding="utf-8") as file:
            for row in csv.DictReader(file):
                words = [f"{folder.resolve() / row['file']}:{row['name']}", *row.get("words", "").split(), "--json"]
                yield f"{folder.name}/{row['file']}", partial(world.checked, words)
    for one in (*zoo.ODD, *zoo.EVERY_RIGHT):
        yield f"zoo {zoo.name_of(one)}", partial(asked, lambda one=one: (one.function, one.settings))
    for cheat in zoo.CHEATS:
        yield f"cheat {cheat.name}", partial(asked, lambda cheat=cheat: (cheat.make(), ()))


def asked(make: Callable[[], tuple[Any, Sequence[str]]]) -> tuple[int, str, str]:
    """Return the verdict on a function of the zoo as a check of a file would."""
    verdict = zoo.checked(*make())
    return 0, json.dumps({"outcome": verdict.outcome, "mistakes": verdict.mistakes, "stage": verdict.stage}), ""


def outcome(job: tuple[int, tuple[tuple[str, str], ...], bool]) -> tuple[str, list[Key]]:
    """Return what becomes of a case with some functions off, and which functions it calls where that is asked."""
    place, off, notes = job

    def work() -> tuple[int, str, str]:
        called = set[CodeType]()
        for name, kind in off:
            switch_off(name, kind)
        if notes:
            sys.setprofile(lambda frame, event, _: called.add(frame.f_code) if event == "call" else None)
        code, said, error = CASES[place][1]()
        sys.setprofile(None)
        keys = [(one.co_filename, one.co_firstlineno) for one in called if one.co_filename.startswith(str(ROOMS))]
        verdict = json.loads(said) if said else {}
        kept = [code, bool(error), *(verdict.get(word) for word in ("outcome", "mistakes", "right_under", "stage"))]
        return 0, json.dumps([json.dumps(kept), keys]), ""

    made: Any = world.in_a_fork(work)
    return (made.verdict[0], [(file, line) for file, line in made.verdict[1]]) if made.verdict else (made.error, [])


CASES: list[Case] = []


def main() -> None:
    """Print each function with how many cases call it and which ones change without it, the losers first."""
    parser = argparse.ArgumentParser(description="Which functions of attn_exp/diagnosis nothing would miss.")
    parser.add_argument("folders", nargs="*", type=Path)
    parser.add_argument("--most", type=int, default=60, help="cases that call a function")
    parser.add_argument("--least", type=int, default=8, help="statements of a function")
    parser.add_argument("--csv", type=Path)
    arguments = parser.parse_args()
    world.import_libraries(" ".join(world.LIBRARIES))
    CASES.extend(cases(arguments.folders))
    with ProcessPoolExecutor(2, multiprocessing.get_context("fork")) as pool:
        before = list(pool.map(outcome, [(place, (), True) for place in range(len(CASES))]))
        every = [(*one, [place for place, (_, keys) in enumerate(before) if one[0] in keys])
                 for one in mechanisms(arguments.least)]  # fmt: skip
        jobs = [(place, ((name, kind),), False) for _, name, _, kind, at in every if len(at) <= arguments.most
                for place in at]  # fmt: skip
        after = list(pool.map(outcome, jobs, chunksize=4))
        lost = {off[0][0]: [CASES[place][0] for (place, _, _), (said, _) in group if said != before[place][0]]
                for off, group in groupby(zip(jobs, after, strict=True), lambda pair: pair[0][1])}  # fmt: skip
        rows = sorted((len(lost.get(name, ())), len(at), -size, name, kind) for _, name, size, kind, at in every
                      if len(at) <= arguments.most)  # fmt: skip
        losers = tuple((name, kind) for missed, _, _, name, kind in rows if not missed)
        together = list(pool.map(outcome, [(place, losers, False) for place in range(len(CASES))], chunksize=4))
    for missed, called, size, name, _ in rows:
        print(f"{missed:4} of {called:4} {-size:4} statements  {name}  {', '.join(lost.get(name, ())[:4])}")
    parted = [name for (name, _), (was, _), (now, _) in zip(CASES, before, together, strict=True) if was != now]
    print(f"{len(losers)} functions off together: {len(parted)} of {len(CASES)} cases change: {', '.join(parted[:20])}")


if __name__ == "__main__":
    main()
