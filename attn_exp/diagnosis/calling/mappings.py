"""Functions of x and a mapping of matrices, such as `params["attn"]["wq"]`, whose keys are found in the code."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from attn_exp.diagnosis.asking.offer import BY_NAME, plain
from attn_exp.diagnosis.asking.sides import biases_of, side_of_name
from attn_exp.diagnosis.asking.uses import Use
from attn_exp.diagnosis.calling.neutral import Context, Source, hinted
from attn_exp.diagnosis.calling.packing import columns
from attn_exp.diagnosis.code.libraries import join, stack

Path = tuple[str, ...]
THREE = ("W_q", "W_k", "W_v")
WEIGHTS, BIASES = ("w", "weight", "kernel", "matrix"), ("b", "bias")
"""Keys for the weight and the bias of a layer that is a mapping itself."""
MOST_DEEP = 4


@dataclass(frozen=True)
class Held:
    """One way to store matrices: per head or not, transposed or not, and how W_o is stored."""

    text: str
    by_head: bool = False
    turned: bool = False
    last_by_head: bool = False
    between: bool = False
    """Whether heads are the middle axis, `[m h d]`, as in `btm,mhd->bthd`."""


WAYS = (
    Held("x @ W"),
    Held("W @ x", turned=True),
    Held("a matrix for each head", by_head=True),
    Held("a matrix for each head, that of the output too", by_head=True, last_by_head=True),
    Held("a turned matrix for each head", by_head=True, turned=True),
    Held("[m h d]", by_head=True, last_by_head=True, between=True),
)


class Mapped(dict[str, Any]):
    """A dict whose keys are attributes too."""

    def __getattr__(self, name: str) -> Any:
        if name not in self:
            raise AttributeError(name)
        return self[name]


def leaves(name: str, uses: Mapping[str, Use], path: Path = ()) -> Iterator[Path]:
    """Yield the key paths to the values that code takes from a mapping."""
    use = uses.get(name, Use())
    for key in dict.fromkeys([*use.keys, *use.fields]):
        inner = uses.get(key, Use())
        if (inner.keys or inner.fields) and len(path) < MOST_DEEP and key not in path and key != name:
            yield from leaves(key, uses, (*path, key))
        else:
            yield (*path, key)


def roles_of(paths: list[Path]) -> dict[Path, tuple[str, ...]]:
    """Return which matrices or biases each path leads to; empty unless q, k and v each occur once."""
    found: dict[Path, tuple[str, ...]] = {}
    names = [path[-1] for path in paths]
    biases = biases_of(names)
    for path in paths:
        word, kind = path[-1], "W"
        if plain(word) in (*WEIGHTS, *BIASES) and len(path) > 1:
            kind = "b" if plain(word) in BIASES else "W"
            word = path[-2]
        elif word in biases or BY_NAME.get(plain(word), "").startswith("b_"):
            kind, word = "b", biases.get(word, word)
        side = BY_NAME.get(plain(word), "") or side_of_name(word) or side_of_name(f"{word}_proj")
        side = side.removeprefix("W").removeprefix("b").removeprefix("_") or ("o" if side else "")
        if side in ("q", "k", "v", "o"):
            found[path] = (f"{kind}_{side}",)
        elif side in ("qkv", "kv"):
            found[path] = tuple(f"{kind}_{one}" for one in side)
    taken = [role for roles in found.values() for role in roles]
    return found if set(THREE) <= set(taken) and len(taken) == len(set(taken)) else {}


def sources(name: str, uses: Mapping[str, Use]) -> Iterator[tuple[Source, tuple[str, ...], Held]]:
    """Yield sources for a parameter that is a mapping of matrices, with their roles and how they are stored."""
    paths = list(leaves(name, uses))
    roles = roles_of(paths)
    if not roles:
        return
    taken = tuple(role for several in roles.values() for role in several)
    kind: type[dict[str, Any]] = (
        Mapped if any(uses.get(word, Use()).fields for path in paths for word in (name, *path[:-1])) else dict
    )
    rest = {path: next(hinted(path[-1], ""), None) for path in paths if path not in roles}
    for held in WAYS:
        yield Source(f"a mapping of matrices, {held.text}", Making(roles, rest, held, kind)), taken, held


@dataclass(frozen=True)
class Making:
    """Builds the mapping for one call."""

    roles: Mapping[Path, tuple[str, ...]]
    rest: Mapping[Path, Source | None]
    held: Held
    kind: type[dict[str, Any]]

    def __call__(self, context: Context) -> dict[str, Any]:
        whole = self.kind()
        for path, several in self.roles.items():
            parts = [self.one(role, context) for role in several]
            put(whole, path, parts[0] if len(parts) == 1 else join(parts, -2 if self.held.turned else -1))
        for path, source in self.rest.items():
            put(whole, path, None if source is None else source.make(context))
        return whole

    def one(self, role: str, context: Context) -> Any:
        """Return a matrix or bias in the form in which it is stored."""
        array, heads = context.given[role], context.at.groups if role[-1] in "kv" else context.at.heads
        if role.startswith("b"):
            by_head = self.held.by_head and role != "b_o"
            return stack(columns(array, heads), 0) if by_head else array
        if role == "W_o":
            if self.held.last_by_head:
                return array.reshape(heads, -1, array.shape[-1])
            return array.swapaxes(0, 1) if self.held.turned else array
        if self.held.between:
            return array.reshape(len(array), heads, -1)
        array = stack(columns(array, heads), 0) if self.held.by_head else array
        return array.swapaxes(-1, -2) if self.held.turned else array


def put(whole: dict[str, Any], path: Path, value: Any) -> None:
    """Set the value at the end of a key path."""
    for key in path[:-1]:
        whole = whole.setdefault(key, type(whole)())
    whole[path[-1]] = value
