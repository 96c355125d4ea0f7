"""Sizes that a file holds for all of its code, as `n_embd = 384` above a class: they are others while it is called.

Many classes take no sizes, or not all of them. Some are made for one number of entries and tokens by name too.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import RLock
from typing import Any

from attn_exp.diagnosis.asking.offer import plain
from attn_exp.diagnosis.code.source import names_in
from attn_exp.diagnosis.matrices.module_sizes import HEADS, INNER, LENGTH, ROOM, SHARED, SIZE, WIDTH, Sizes

OF_BATCH = ("batchsize", "bs", "bsz", "batch", "nbatch", "nbatches", "b", "numbatch")
OF_ROWS = (*LENGTH, "sequencelength", "seqlength", "numtokens", "contextsize", "maxtokens", "context",
           "ctx", "maxcontext", "maxctx")  # fmt: skip
"""What a file calls the numbers of entries and of tokens of a call."""


def numbers_read(kind: Any, making: bool) -> dict[str, int | float]:
    """Return the numbers of a class's file that it reads, or layers that it is made of: when called, or made too."""
    space, kinds, names = space_of_file(kind), [kind], set[str]()
    for one in kinds:
        methods = [inspect.unwrap(method) for name, method in vars(one).items()
                   if inspect.isfunction(method) and (making or name != "__init__")]  # fmt: skip
        read = {name for method in methods for name in names_in(method.__code__)}
        within = [space[name] for name in read if inspect.isclass(space.get(name))]
        kinds += [other for other in within if other.__module__ == kind.__module__ and other not in kinds]
        names |= read
    return {name: space[name] for name in sorted(names) if type(space.get(name)) in (int, float)}


def space_of_file(kind: Any) -> dict[str, Any]:
    """Return the names of the file of a class, of which some may be exchanged."""
    init = vars(kind).get("__init__") or vars(kind).get("forward")
    return getattr(inspect.unwrap(init) if callable(init) else None, "__globals__", None) or vars(
        sys.modules.get(kind.__module__, sys)
    )


def smaller(kind: Any, sizes: Sizes) -> dict[str, int | str]:
    """Return the sizes of a class's file as others; none of them where one may be made of another in an unknown way."""
    read, asked = numbers_read(kind, making=True), numbers_read(kind, making=False)
    known = {name: sizes.value(name) for name in read}
    rooms: dict[str, int | str] = {
        name: ROOM for name, value in read.items() if plain(name) in OF_ROWS and name not in asked and value < ROOM
    }  # of masks and tables made beforehand
    usual = {name for name, value in read.items() if plain(name) in (*OF_BATCH, *OF_ROWS) or value in (0, 1)}
    usual |= {name for name in asked if told_twice(kind, name)}
    rest = {name for name in read if name not in usual and type(known[name]) is not int and "drop" not in name.lower()}
    found: dict[str, int | str] = {
        name: value for name, value in known.items() if name not in usual and type(value) is int
    }
    return rooms if rest else rooms | found


def told_twice(kind: Any, name: str) -> bool:
    """Say whether a class is told a size itself, makes its matrices with that, and reads the file's for a call alone.

    The two may differ: then what the call does with the file's is wrong.
    """
    init = vars(kind).get("__init__")
    if not inspect.isfunction(init) or name in names_in(init.__code__):
        return False
    meaning = next((words for words in (WIDTH, HEADS, SIZE, SHARED) if plain(name) in words), ())
    return any(plain(one) in meaning for one in inspect.signature(init).parameters)


def of_calls(layer: Any) -> dict[str, int | str]:
    """Return which names of its file a layer reads as the number of entries, or of tokens, when it is called."""
    words = {name: plain(name) for name in numbers_read(type(getattr(layer, "module", layer)), making=False)}
    meant = {name: "batch" if word in OF_BATCH else "rows" if word in OF_ROWS else "" for name, word in words.items()}
    return {name: size for name, size in meant.items() if size}


def of_counts(layer: Any) -> dict[str, int | str]:
    """Return the whole numbers of its file that a layer reads when it is called, as few: what they count is tokens."""
    read = numbers_read(type(getattr(layer, "module", layer)), making=False)
    others = (*WIDTH, *INNER, *HEADS, *SHARED, *SIZE)
    return {name: FEW for name, value in read.items()
            if type(value) is int and value > FEW and plain(name) not in others}  # fmt: skip


FEW = 2
"""Rows, columns or frames, of each of which there is another."""


@contextmanager
def exchanged(kind: Any, told: Mapping[str, int | str], call: Any = None) -> Iterator[None]:
    """Let names of a class's file be other numbers meanwhile, for one thread: those told, or sizes of a call."""
    if not told:
        yield
        return
    with ONE_AT_A_TIME:
        space = space_of_file(kind)
        before = {name: space[name] for name in told if name in space}
        try:
            space.update({name: getattr(call, size) if isinstance(size, str) else size for name, size in told.items()})
            yield
        finally:
            space.update(before)


ONE_AT_A_TIME = RLock()
