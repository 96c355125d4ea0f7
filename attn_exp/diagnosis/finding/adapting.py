"""Adapt a function of any signature to q, k, v, or to x and a layer's matrices, by trying.

Names are hints: they order the attempts. An error or a right answer then shows what an unknown argument is.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain, permutations, product
from types import MappingProxyType
from typing import Any

from attn_exp.diagnosis.asking.offer import (
    CORE,
    LAYER,
    Offer,
    is_required,
    parameters_of,
    role_of,
    roles_taken,
    told,
)
from attn_exp.diagnosis.asking.sides import biases_of, side_of_name
from attn_exp.diagnosis.asking.uses import Use, uses_of
from attn_exp.diagnosis.calling import mappings, turning_tables
from attn_exp.diagnosis.calling.bound import Bound
from attn_exp.diagnosis.calling.call import holds_size
from attn_exp.diagnosis.calling.neutral import (
    HEADS,
    ONE,
    RANDOM_KEY,
    ROOM_FOR_ANSWER,
    ROOT,
    SIZE,
    WIDTH,
    Context,
    Source,
    is_known,
    sources_of,
)
from attn_exp.diagnosis.calling.packing import KV, QKV, WHOLE, Pack, source_of_matrices, ways_of

SIZES = "sizes"
"""The role by which an adapter receives the sizes of a call."""
MOST_WAYS = 24
"""Values that are tried for unknown arguments, for each way to pass the arrays."""
WHOLE_LAYER = (*LAYER, "W_o", "b_q", "b_k", "b_v", "b_o", "memory")
PASSED = ("mask", "padding", "query_padding", "causal", "scale", "window", "softcap", "shared", "lengths", "alibi",
          "sinks", "heads", "kv_heads", "dropout", "added")  # fmt: skip
"""Roles of the arguments that a case sets."""
MASKS = ("mask", "padding")
NEEDED = ("mask", "padding", "query_padding", "causal", "scale", "lengths", "heads", "kv_heads")
"""Those that a case sets even if it requests nothing of the kind."""


@dataclass(frozen=True)
class Adapter:
    """A function with a source for each of its arguments; `passed` names those that a case sets."""

    function: Callable[..., Any]
    sources: Mapping[str, Source]
    positional: tuple[str, ...]
    passed: tuple[str, ...] = ()
    starred: str = ""
    in_columns: bool = False
    """Whether its output has tokens as columns."""

    @property
    def holds_size(self) -> bool:
        """Whether the function is an object that may be built for one head size."""
        return holds_size(self.function)

    def __call__(self, **given: Any) -> Any:
        at, library, positions = given.pop(own(SIZES))
        core = {role: given.pop(own(role)) for role in (*CORE, *WHOLE_LAYER) if own(role) in given}
        given.pop(own("heads"), None)
        context = Context(at, library, core, turning_tables.as_asked(positions, at.size))
        values = {name: source.make(context) for name, source in self.sources.items()}
        return self.said(self.function, values, given)

    def said(self, function: Callable[..., Any], values: dict[str, Any], given: Mapping[str, Any]) -> Any:
        """Call the function with its own values and those of the case, and return its output.

        If it returns None, its output is in the buffer that it was passed.
        """
        room: Any = next((values[name] for name, source in self.sources.items() if source is ROOM_FOR_ANSWER), None)
        if self.starred:
            return function(*values.values(), **given)
        values |= given
        first = []
        for name in self.positional:
            if name not in values:
                break
            first.append(values.pop(name))
        said = function(*first, **values)
        said = room if said is None else said
        return said.swapaxes(-1, -2) if self.in_columns else said

    def __str__(self) -> str:
        """List the arguments other than q, k, v and x themselves, with their values."""
        return ", ".join(f"{name}={source.text}" for name, source in self.sources.items()
                         if source.text not in (*"qkvx", name))  # fmt: skip


def own(role: str) -> str:
    """Return the adapter's keyword for a role that the function has no name for; no parameter starts with a space."""
    return f" {role}"


@dataclass(frozen=True)
class Arrangement:
    """Which arguments hold the arrays: a source for each, in which layouts, and whether they are heads or a layer."""

    core: bool
    sources: Mapping[str, Source]
    layouts: tuple[str, ...] = ()
    roles: tuple[str, ...] = CORE
    counts_heads: bool = False
    guessed: bool = False
    only_if_right: bool = False
    in_columns: bool = False
    turned: bool = False


def adapted(function: Any, name: str) -> Iterator[Bound]:
    """Yield a function of q, k, v or of x and matrices for every way to call it that its signature allows.

    Raises:
        UserError: its parameters cannot be determined.
    """
    parameters = parameters_of(function, name)
    uses = uses_of(function) if any(map(is_required, parameters)) else {}
    roles = roles_taken(parameters)
    for arrangement in chain(of_mappings(parameters, uses), arrangements(parameters)):
        passed = {roles[given.name]: given for given in reversed(parameters)
                  if roles[given.name] in PASSED and given.name not in arrangement.sources
                  and (given.default is not given.empty or roles[given.name] in NEEDED)}  # fmt: skip
        rest = [given for given in parameters if given.name not in arrangement.sources and given not in passed.values()]
        unknown = [given for given in rest if is_required(given) or counts(given, arrangement)]
        bind = partial(bound_of, function, parameters, arrangement)
        for extra in choices(unknown):
            yield bind(passed, extra)
        if "scale" in passed and is_required(passed["scale"]):  # `scale` may also be what divides scores
            others = {role: given for role, given in passed.items() if role != "scale"}
            yield bind(others, next(choices(unknown)) | {passed["scale"].name: ROOT})
        if parts := {given.name: ONE for given in rest if counts_parts(given)}:
            yield bind(passed, next(choices(unknown)) | parts)
        bears = [passed[role].default for role in MASKS if role in passed]  # its own code may fail on such a default
        if any(default is None or isinstance(default, bool) for default in bears):
            needed = {role: passed[role].replace(default=inspect.Parameter.empty) for role in MASKS if role in passed}
            yield bind(passed | needed, next(choices(unknown)))


def bound_of(
    function: Any, parameters: Sequence[inspect.Parameter], arrangement: Arrangement,
    passed: Mapping[str, inspect.Parameter], extra: Mapping[str, Source],
) -> Bound:  # fmt: skip
    """Return one way to call a function, with what it takes."""
    given = [one.name for one in parameters if one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD)]
    starred = next((one.name for one in parameters if one.kind is one.VAR_POSITIONAL), "")
    adapter = Adapter(
        function, {**arrangement.sources, **extra}, tuple(given), tuple(one.name for one in passed.values()),
        starred if starred and not given else "", arrangement.in_columns,
    )  # fmt: skip
    names = {role: own(role) for role in arrangement.roles} | {role: one.name for role, one in passed.items()}
    names[SIZES] = own(SIZES)
    used = [*extra.values()]
    counts = arrangement.counts_heads or any(source is HEADS for source in used)
    if counts and "heads" not in names:
        names["heads"] = own("heads")
    defaults = {role: told(one.default) for role, one in passed.items() if one.default is not one.empty}
    offer = Offer(arrangement.core, names, (), defaults, arrangement.layouts, str(adapter), arrangement.guessed,
                  arrangement.only_if_right, turned=arrangement.turned)  # fmt: skip
    return Bound(adapter, function, offer)


def counts_parts(given: inspect.Parameter) -> bool:
    """Return whether a parameter's default is a chunk or block size above `MOST_TOGETHER`."""
    is_size = bool(re.search(r"chunk|block|tile|bucket", given.name.lower()))
    return type(given.default) is int and given.default > MOST_TOGETHER and is_size


MOST_TOGETHER = 8


def counts(given: inspect.Parameter, arrangement: Arrangement) -> bool:
    """Return whether a parameter's default is a size that a layer's matrices determine."""
    return is_size(given) or (not arrangement.core and type(given.default) is int and WIDTH in sources_of(given))


def is_size(given: inspect.Parameter) -> bool:
    """Return whether a parameter sets the head size or the width, as `d_k=64` does: calls should override it."""
    is_large = type(given.default) is int and given.default >= SMALLEST_SIZE
    return is_large and sources_of(given)[0] in (SIZE, WIDTH)


SMALLEST_SIZE = 8
"""A smaller default may be an axis."""


def choices(unknown: Sequence[inspect.Parameter]) -> Iterator[dict[str, Source]]:
    """Yield values for unknown arguments: the likeliest of each, then variants that change one of them.

    Tables of sines change together with those of cosines.
    """
    options = {given.name: (*([RANDOM_KEY] if is_random_key(given.name) else []), *sources_of(given))
               for given in unknown}  # fmt: skip
    first = {name: sources[0] for name, sources in options.items()}
    yield first
    sines = {name: other for name in options if (other := name.replace("cos", "sin")) != name and other in options}
    others = [(name, place) for name, sources in options.items() if name not in sines.values()
              for place in range(1, len(sources))]  # fmt: skip
    for name, place in others[: MOST_WAYS - 1]:
        turned = {sines[name]: options[sines[name]][place]} if name in sines else {}
        yield first | {name: options[name][place]} | turned


def is_random_key(name: str) -> bool:
    """Return whether an argument is a random key, as in JAX: `key`, `dropout_key`, `prng_key`."""
    return name == RANDOM[0] or bool(re.search(r"(dropout|rng|random).*key", name.lower()))


# Which arguments hold the arrays


def arrangements(parameters: Sequence[inspect.Parameter]) -> Iterator[Arrangement]:
    """Yield which arguments may hold the arrays, the likeliest first; if names say it, nothing else is tried."""
    usable = [given for given in parameters if given.kind not in (given.VAR_POSITIONAL, given.VAR_KEYWORD)]
    named = sides_of(usable)
    biases = biases_of([given.name for given in usable])
    weights = [given.name for given in usable if side_of_name(given.name).startswith("W") and given.name not in biases]
    known = list(by_names(named, weights, biases))
    if known:
        yield from known
        return
    required = [given for given in usable if is_required(given) and role_of(given.name) not in PASSED]
    kinds = {given.kind for given in parameters}
    if not required and inspect.Parameter.VAR_POSITIONAL in kinds:
        yield Arrangement(True, dict(zip("qkv", map(direct, "qkv"), strict=True)))
    elif not required and inspect.Parameter.VAR_KEYWORD in kinds:
        for names in (("q", "k", "v"), ("query", "key", "value")):
            yield Arrangement(True, dict(zip(names, map(direct, "qkv"), strict=True)))
    else:
        alone = len(required) == len(CORE)
        names_left = [given.name for given in required if alone or side_of_name(given.name) or not is_known(given.name)]
        yield from by_position(names_left)


def sides_of(usable: Sequence[inspect.Parameter]) -> dict[str, str]:
    """Return the name of the parameter for each of q, k, v, x and the matrices; required ones come first."""
    named: dict[str, str] = {}
    for given in sorted(usable, key=lambda one: not is_required(one)):
        side = side_of_name(given.name)
        if side and (side not in named or (side == "k" and len(given.name) == len(named.get("q", "")) == 1)):
            named[side] = given.name  # beside q, k and v, `key` is a random key
    return named


def by_names(
    named: Mapping[str, str], weights: Sequence[str], biases: Mapping[str, str]
) -> Iterator[Arrangement]:  # fmt: skip
    """Yield the arrangements that names imply: `named` by meaning, and `weights`, the matrices in order.

    `biases` maps each bias to its matrix.
    """
    inputs = [named[side] for side in ("x", "q", "k", "v", "kv") if side in named]
    matrices = [name for name in weights if side_of_name(name) != "W"]
    if inputs and len(matrices) >= len(CORE):
        for one in of_layer(inputs[0], weights, biases):
            others = {**dict.fromkeys(inputs[1:], MEMORY), **one.sources}
            yield replace(one, sources=others, roles=(*one.roles, *(["memory"] if inputs[1:] else [])))
    elif set(CORE) <= set(named):
        yield from of_heads([named[side] for side in "qkv"])
    elif "qkv" in named and "x" not in named:
        yield from packed_heads({named["qkv"]: QKV}, {})
    elif {"q", "kv"} <= set(named):
        yield from packed_heads({named["kv"]: KV}, {named["q"]: "q"})
    elif "x" in named and weights:
        yield from of_layer(named["x"], weights, biases)


def of_mappings(parameters: Sequence[inspect.Parameter], uses: Mapping[str, Use]) -> Iterator[Arrangement]:
    """Yield the arrangements of x and a mapping of matrices, whose keys are found in the code."""
    needed = [given.name for given in parameters if is_required(given)]
    mapped = next((name for name in needed if any(True for _ in mappings.sources(name, uses))), "")
    rest = [name for name in needed if name != mapped]
    named_x = [name for name in rest if side_of_name(name) in ("x", "q")]
    unknown = [name for name in rest if not is_known(name) and name not in RANDOM]
    for x in (named_x or unknown)[:1] if mapped else ():
        for source, roles, how in mappings.sources(mapped, uses):
            for in_columns in (True, False) if how.turned else (False,):
                given = (
                    Source("x.T", lambda context: context.given["x"].swapaxes(-1, -2)) if in_columns else direct("x")
                )
                yield Arrangement(False, {x: given, mapped: source}, (), ("x", *roles), how.by_head, guessed=True,
                                  in_columns=in_columns, turned=how.turned and "W_o" in roles)  # fmt: skip


RANDOM = ("key", "rng", "k")
"""Names of a source of random numbers."""


def by_position(names: Sequence[str]) -> Iterator[Arrangement]:
    """Yield arrangements of arguments whose names say nothing: q, k and v in any order, or x and matrices."""
    if len(names) >= len(CORE):
        for order in permutations(names[:3]):
            yield from of_heads(order)
        yield from of_layer(names[0], names[1:5])
        return
    packed = packed_heads({names[0]: QKV}, {}) if len(names) == 1 else iter(())
    if len(names) == len("qk"):
        packed = chain(packed_heads({names[1]: KV}, {names[0]: "q"}), of_layer(names[0], names[1:]))
    yield from (replace(one, only_if_right=True) for one in packed)


def direct(role: str) -> Source:
    """Return the source of an array as it is."""
    return Source(role, lambda context: context.given[role])


MEMORY = Source("x, or a memory", lambda context: context.given.get("memory", context.given["x"]))


def of_heads(names: Sequence[str]) -> Iterator[Arrangement]:
    """Yield the arrangements of q, k and v, as they are and with k transposed."""
    yield Arrangement(True, {name: direct(role) for name, role in zip(names, "qkv", strict=True)})
    turned = Source("k.swapaxes(-1, -2)", lambda context: context.given["k"].swapaxes(-1, -2))
    sides = {name: turned if role == "k" else direct(role) for name, role in zip(names, "qkv", strict=True)}
    yield Arrangement(True, sides, ("bhtd", "htd"), guessed=True)


def packed_heads(packed: Mapping[str, Sequence[Pack]], single: Mapping[str, str]) -> Iterator[Arrangement]:
    """Yield the arrangements of q, k and v in which several share one argument."""
    ((name, packs),) = packed.items()
    roles = tuple(role for role in CORE if role not in single.values())
    alone = {word: direct(role) for word, role in single.items()}
    for pack in packs:
        yield Arrangement(True, {**alone, name: of_pack(pack, roles)}, pack.layouts, guessed=True)


def of_pack(pack: Pack, roles: Sequence[str]) -> Source:
    """Return the source of an argument that packs several arrays."""
    text = pack.text if len(roles) == len(CORE) else pack.text.replace("q, k, v", "k, v")
    return Source(text, lambda context: pack.make([context.given[role] for role in roles]))


Held = dict[str, tuple[tuple[str, ...], str]]
"""For each argument, which matrices it holds, and how."""


def of_layer(x: str, names: Sequence[str], biases: Mapping[str, str] = MappingProxyType({})) -> Iterator[Arrangement]:
    """Yield the arrangements of x and matrices: three or four arguments, or fewer that hold several each."""
    sides = {side_of_name(name): name for name in names}
    known = [side for side in ("W_q", "W_k", "W_v") if side in sides]
    three = ("W_q", "W_k", "W_v")
    if len(known) == len(three):
        orders: list[tuple[str, ...]] = [three]
        names = [*(sides[side] for side in three), *(name for name in names if name not in sides.values()
                 or side_of_name(name) in ("W_o", "W"))]  # fmt: skip
    else:
        orders = list(permutations(three)) if len(names) >= len(three) else [three]
    if len(names) >= len(three):
        for how, order in product(("side by side", "heads", "turned"), orders):
            for last in ("side by side", "turned") if len(names) > len(three) else ("",):
                held: Held = {name: ((role,), how) for name, role in zip(names, order, strict=False)}
                if last:
                    held[names[3]] = (("W_o",), "turned" if how == "turned" else last)
                yield layer_of(x, held, biases)
        return
    for how in ways_of(three):
        for last in ("side by side", "w and b", "weight and bias", "turned") if len(names) > 1 else ("",):
            held = {names[0]: ((*three, *(["W_o"] if how in WHOLE else [])), how)}
            if last:
                held[names[1]] = (("W_o",), last)
            yield layer_of(x, held, biases)
            if how in WHOLE and not last:  # the code may have no output projection
                yield layer_of(x, {names[0]: (three, how)}, biases)


def layer_of(x: str, held: Held, biases: Mapping[str, str]) -> Arrangement:
    """Return the arrangement of x and matrices as `held` says; biases are passed like their matrices."""
    sources = {name: source_of_matrices(roles, how) for name, (roles, how) in held.items()}
    taken = [role for roles, _ in held.values() for role in roles]
    for bias, matrix in biases.items():
        if matrix in held:
            roles, how = held[matrix]
            beside = tuple(role.replace("W", "b") for role in roles)
            taken += beside
            sources[bias] = source_of_matrices(beside, "side by side" if how == "turned" else how)
    counts_heads = any(how in ("heads", "by head") for _, how in held.values())
    turned = "W_o" in taken and {how for _, how in held.values()} == {"turned"}
    return Arrangement(False, {x: direct("x"), **sources}, (), ("x", *taken), counts_heads, guessed=True, turned=turned)
