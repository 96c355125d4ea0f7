"""Makes an object of a class that nobody here knows: what fails is tried otherwise, one argument at a time."""

from __future__ import annotations

import ast
import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import combinations, product
from typing import Any

from attn_exp.diagnosis.asking.clock import MAKING, is_over
from attn_exp.diagnosis.asking.offer import parameters_of, plain
from attn_exp.diagnosis.asking.repeat import is_plain_value
from attn_exp.diagnosis.asking.uses import Use, is_of_a_library, keywords_read, owner_of
from attn_exp.diagnosis.calling.call import reached
from attn_exp.diagnosis.calling.search_of_ways import WITHOUT_PLACE, NoWayError
from attn_exp.diagnosis.code.source import tree_of
from attn_exp.diagnosis.inside.inner import Look, OtherShapeError, UnreadError, tells_all
from attn_exp.diagnosis.inside.sides_inside import TOKENS_CUT
from attn_exp.diagnosis.making.configurations import (
    Asked,
    AskedFields,
    config_class,
    configured,
    is_config,
    is_plain,
    with_fields,
)
from attn_exp.diagnosis.making.guessing import About, Later, about, counts_tokens, guesses
from attn_exp.diagnosis.matrices.module_sizes import Sizes, is_switch_of_causal
from attn_exp.errors import UncalledError, UserError
from attn_exp.own_code import error_line, held

MOST_TRIES, MOST_USED, CALLED, OTHERWISE = 60, 24, 8, 4
"""How often a class is made, and how often what is made is used, before it is given up; what can be called and not read
counts as `CALLED` uses, and what answers in another shape as `OTHERWISE`."""
LARGER = (1, 4)
"""By how much heads are larger than usual, where the usual size does not do: groups of 32 numbers need so many."""

LARGEST = 256
"""Of a head: what a width is a multiple of beyond this is hardly that."""
TYPES = (int, float, bool, str)


class PoorError(Exception):
    """What was made can be used, but tells little: heads of one number, say; `made` is what `works` would return."""

    def __init__(self, made: Any, said: str) -> None:
        super().__init__(said)
        self.made = made


@dataclass
class Choices:
    """What is chosen where several values are possible: the place of each among them, or the first."""

    places: Mapping[str, int]
    missing: Sequence[str] = ()
    options: dict[str, int] = field(default_factory=dict)
    values: dict[str, Any] = field(default_factory=dict)

    def choose(self, name: str, values: list[Any]) -> Any:
        """Return the value that is to be tried now."""
        self.options[name] = len(values)
        value = self.values[name] = values[min(self.places.get(name, 0), len(values) - 1)]
        return value.make() if isinstance(value, Later) else value


def ladder(search: Search, sizes: Sizes) -> Iterator[Sizes]:
    """Yield sizes: those asked for, then with larger heads, then those that errors ask for.

    The code of a class may say of what its width is a multiple: heads of 64 numbers, say.
    """
    uses = search.about.uses.items()
    fitting = multiple(sizes, math.lcm(*(use.multiple_of for name, use in uses if sizes.value(name) == sizes.width)))
    for factor in (one for one in LARGER if one == 1 or one * fitting.size <= LARGEST):
        yield replace(fitting, width=fitting.width * factor, size=fitting.size * factor)
    said = " ".join(map(error_line, (*search.failed, *search.refused)))
    for number in dict.fromkeys(map(int, re.findall(r"(?:divisible by|multiple of)\D{0,20}(\d+)", said))):
        yield multiple(fitting, number)
    for number in search.about.insisted if search.refused else ():
        heads = fitting.heads if number % fitting.heads == 0 else 1
        yield replace(fitting, width=number, heads=heads, shared=min(heads, fitting.shared), size=number // heads)


def multiple(sizes: Sizes, number: int) -> Sizes:
    """Return sizes in which the width is a multiple of a number, which is that of a head where it is larger."""
    if not 1 < number <= LARGEST or sizes.width % number == 0:
        return sizes
    size = number if number > sizes.size else math.lcm(number, sizes.size)
    return replace(sizes, width=size * sizes.heads, size=size)


def construct(
    kind: Any, name: str, sizes: Sizes, works: Callable[[Any, Sizes], Any], within: tuple[Any, ...] = ()
) -> Any:
    """Return what `works` says of the first object of a class with which it does not raise an error.

    `within`: the classes for which this one is made.

    Raises:
        UserError: none does, within some tens of tries and some seconds; it says the error of the first.
    """
    search = Search(kind, name, works, about(kind, within, part_of))
    tries = ((only_needed, of_size) for only_needed in (False, True) for of_size in ladder(search, sizes))
    for only_needed, of_size in tries:
        if search.goes_on(of_size, only_needed):
            return unless_by_chance(search, search.made)
        if search.seen is not None:
            raise search.seen
        if search.poor:
            return unless_by_chance(search, search.poor[0])
        if search.refused and search.is_over():
            break
    if search.refused:
        raise next((one for one in search.refused if isinstance(one, UnreadError)), search.refused[0])
    raise unmade(name, search.given, sizes, search.failed[0])


def unless_by_chance(search: Search, made: Any) -> Any:
    """Return a layer, unless it takes one number of tokens and the likeliest sizes gave an answer of another shape.

    What axes of others are by chance is no layer then.

    Raises:
        OtherShapeError: that of the likeliest sizes, where attention is seen inside.
    """
    first = next(iter(search.refused), None)
    if not isinstance(first, OtherShapeError):  # what is made may be anything else than a layer
        return made
    inside = getattr(made, "inside", None)
    if inside is not None and inside.tokens and first.look.seen() is not None:
        raise first
    return made


def with_argument(kind: Any, name: str, word: str, value: Any) -> Any:
    """Return what makes objects of a class with a value for one of its arguments, and says that it takes the others."""

    def make(**said: Any) -> Any:
        return kind(**said, **{word: value})

    given = [one.replace(kind=one.KEYWORD_ONLY) for one in parameters_of(kind, name) if is_plain(one)]
    vars(make)["__signature__"] = inspect.Signature([one for one in given if one.name != word])
    make.__module__ = kind.__module__
    vars(make).update(owner=kind, told={word: value})
    return make


def is_large(made: Any) -> bool:
    """Say whether a module has so many numbers that each of hundreds of calls would take long."""
    parameters = getattr(made, "parameters", None)
    if not callable(parameters) or inspect.isclass(made):
        return False
    with suppress(Exception):  # those of a lazy layer are made at its first call
        return sum(getattr(one, "nelement", int)() for one in parameters()) > LARGE
    return False


LARGE = 2**23


def part_of(kind: Any, sizes: Sizes, within: tuple[Any, ...]) -> Any:
    """Return an object of a class that another one is made of."""
    return construct(kind, kind.__name__, sizes, lambda made, _: made, within)


class Search:
    """The search for what a class is made of: of each argument the value is kept with which making comes furthest."""

    def __init__(self, kind: Any, name: str, works: Callable[[Any, Sizes], Any], known_of: About) -> None:
        self.kind, self.works, self.about = kind, works, known_of
        self.given = parameters_of_all(kind, name)
        self.tries, self.most_used = 0, MOST_USED
        self.failed, self.refused, self.poor = list[Exception](), list[Exception](), list[Any]()
        self.made: Any = None
        self.seen: UnreadError | None = None
        self.missing, self.lengths = list[str](), set[int]()
        self.options: dict[str, int] = {}
        self.values: dict[str, Any] = {}

    def goes_on(self, sizes: Sizes, only_needed: bool) -> bool:
        """Try values for the arguments, the likeliest first; return whether what was made of some works."""
        self.most_used = MOST_USED * (1 + only_needed)
        chosen: dict[str, int] = {}
        best = self.rank(chosen, sizes, only_needed)
        while best is not None and not self.is_over():
            better = None
            for others in self.otherwise(chosen):
                rank = self.rank(chosen | others, sizes, only_needed)
                if rank is None:
                    return True
                if rank > best:
                    better, best = others, rank
                    break
                if self.is_over():
                    return False
            if better is None:
                return False
            chosen = chosen | better
        return best is None

    def is_over(self) -> bool:
        """Say whether enough was tried; a length that is told is exchanged once where errors spoke of it."""
        counts = (
            OTHERWISE if isinstance(one, OtherShapeError) else CALLED if isinstance(one, UnreadError) else 1
            for one in self.refused
        )  # it will hardly be read otherwise
        used = self.seen is not None or sum(counts) + len(self.poor) >= self.most_used
        is_owed = self.tries == 1 and any(self.is_length(name) and counts_tokens(plain(name)) for name in self.values)
        return self.tries >= MOST_TRIES or used or (not is_owed and is_over(MAKING, "other ways to make it"))

    def otherwise(self, chosen: Mapping[str, int]) -> Iterator[dict[str, int]]:
        """Yield other values of one argument, first of those that the error names or asked for last; then of two."""
        last = self.refused[-1:] or self.failed[-1:]
        said = error_line(last[0]) if last else ""
        order = list(self.options)
        lengths = {name: self.is_length(name) + counts_tokens(plain(name)) for name in order}
        names = sorted(order, key=lambda name: (name not in said, -lengths[name], -order.index(name)))
        others = {
            name: [place for place in range(self.options[name]) if place != chosen.get(name, 0)] for name in names
        }
        yield from ({name: place} for name in names for place in others[name])
        for one, other in combinations(names, 2):
            yield from ({one: here, other: there} for here, there in product(others[one], others[other]))

    def is_length(self, name: str) -> bool:
        """Say whether a number was given for an argument that errors spoke of beside the number of tokens."""
        value = self.values.get(name)
        return type(value) is int and value in self.lengths

    def rank(self, places: Mapping[str, int], sizes: Sizes, only_needed: bool) -> tuple[int, ...] | None:
        """Return how far making an object comes, as something to compare, or None where what is made works."""
        self.tries += 1
        choices = Choices(places, self.missing)
        given = [one for one in self.given if not only_needed or one.default is one.empty or is_asked(one, sizes)]
        try:
            with held():
                said = self.arguments(given, sizes, choices)
                words, other = written(given, getattr(self.kind, "told", {}) | said), switched(given, said, sizes)
                made = called_with(self.kind, given, said)
        except Exception as error:
            self.options = dict(choices.options)
            self.failed.append(error)
            lacks = re.search(r"(?<!'NoneType' object )has no attribute '(\w+)'", error_line(error))
            if lacks and lacks[1] not in self.missing and not lacks[1].startswith("__") and not self.is_over():
                self.missing.append(lacks[1])
                return self.rank(places, sizes, only_needed)
            return (0, *reached(error, WITHOUT_PLACE))
        self.options, self.values = dict(choices.options), dict(choices.values)
        try:
            if self.tries > 1 and is_large(made):
                raise UncalledError(f"{self.kind.__name__} of its own sizes is too large to ask")
            self.made = self.works(made, replace(sizes, words=words, switched=other))
        except PoorError as error:
            self.poor.append(error.made)
        except Exception as error:
            self.refused.append(error)
            is_open = any(isinstance(one, OtherShapeError) for one in self.refused)  # what its axes are
            if isinstance(error, UnreadError) and not is_open and not self.poor and tells_all_of(error.look):
                self.seen = error  # no other value shows more of it
            without_way = error if isinstance(error, NoWayError) else error.__cause__
            if not isinstance(without_way, NoWayError):
                return (1,)
            self.lengths |= without_way.lengths
            return (1, *without_way.furthest)
        else:
            return None
        return (2,)

    def arguments(self, given: Sequence[inspect.Parameter], sizes: Sizes, choices: Choices) -> dict[str, Any]:
        """Return what a class is made of in this try."""
        said: dict[str, Any] = {}
        for one in given:
            use = self.about.uses.get(one.name, Use())
            settings = config_class(one, self.kind) if one.default is one.empty else None
            asked = Asked(sizes, choices.choose, self.about)
            if settings is not None and not issubclass(settings, tuple) and not is_of_a_library(settings):
                ways = [Later(configured, settings, sizes, choices.choose, self.about)]
                was_called = any(isinstance(error, UnreadError) for error in self.refused)  # its own sizes may be large
                own = [Later(settings)] if whole(settings) and not was_called else []
                said[one.name] = choices.choose(one.name, [*ways, *own])
                lacking = [name for name in choices.missing if not hasattr(said[one.name], name)]
                with_fields(said[one.name], {name: getattr(asked, name) for name in lacking})
            elif one.default is one.empty and (is_config(plain(one.name)) or use.holds_others):
                frozen = self.about.library == "linen" and use.keys and not use.fields  # Flax keeps a copy of a mapping
                is_no_mapping = (self.about.is_nnx and not use.keys) or self.about.library == "linen"
                of_fields = AskedFields(asked) if is_no_mapping else asked
                said[one.name] = {key: asked[key] for key in use.keys} if frozen else of_fields
            elif one.default is None and is_config(plain(one.name)):
                instead = AskedFields(asked) if self.about.library == "linen" else asked
                said[one.name] = choices.choose(one.name, [None, instead])
            elif one.default is None and counts_layers(plain(one.name)):
                said[one.name] = choices.choose(one.name, [None, 0])
            elif values := guesses(one, sizes, self.about):
                said[one.name] = choices.choose(one.name, values)
        return said


def is_asked(given: inspect.Parameter, sizes: Sizes) -> bool:
    """Say whether a class is to be told what a parameter says, also where it could do without."""
    return sizes.causal is not None and is_switch_of_causal(given)


def counts_layers(word: str) -> bool:
    """Say whether a word says which layer of many one is."""
    return bool(re.fullmatch("(layer|block)(idx|index|id|num|number|i)", word))


def tells_all_of(look: Look) -> bool:
    """Say whether what is seen inside a layer of these sizes leaves nothing open; other sizes may lay tokens right."""
    seen = look() if look.is_rich else None
    return seen is not None and tells_all(seen) and TOKENS_CUT not in seen.mistakes


def whole(settings: Any) -> bool:
    """Say whether a configuration can be made of nothing: its own defaults may belong together."""
    return all(one.default is not one.empty for one in parameters_of(settings, settings.__name__) if is_plain(one))


def called_with(kind: Any, given: Sequence[inspect.Parameter], said: dict[str, Any]) -> Any:
    """Return what a class makes of its arguments; those without a name go first."""
    first = [said.pop(one.name) for one in given if one.kind is one.POSITIONAL_ONLY and one.name in said]
    return kind(*first, **said)


def written(given: Sequence[inspect.Parameter], said: Mapping[str, Any]) -> str:
    """Return the arguments of a class in brackets, without those that are its defaults; nothing where one of them
    cannot be written."""
    usual = {one.name: one.default for one in given}
    if not all(map(is_plain_value, said.values())):
        return ""
    words = (
        f"{name}={value!r}"
        for name, value in said.items()
        if not (is_plain_value(usual.get(name, inspect.Parameter.empty)) and value == usual[name])
    )
    return f"({', '.join(words)})"


def switched(given: Sequence[inspect.Parameter], said: Mapping[str, Any], sizes: Sizes) -> str:
    """Return the switches that are given another value than their own default, though nobody asked for it."""
    unasked = (one for one in given if isinstance(one.default, bool) and not is_asked(one, sizes))
    return ", ".join(f"{one.name}={said[one.name]}" for one in unasked if said.get(one.name) is (not one.default))


def parameters_of_all(kind: Any, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a class, with those that it hands on to its base, and keywords that it reads itself."""
    given = parameters_of(kind, name)
    found = {one.name: one for one in given if is_plain(one)}
    rest = next((one.name for one in given if one.kind is one.VAR_KEYWORD), "")
    owner = owner_of(kind)
    before, said = getattr(owner, "__init__", None), set[str]()
    for home in inspect.getmro(owner)[1:] if inspect.isclass(owner) and rest else ():
        init = vars(home).get("__init__")
        if is_of_a_library(home):
            break
        if init is not None:
            others = list(inspect.signature(init).parameters.values())[1:]
            said |= handed_on(before)
            before = init
            found |= {
                one.name: one.replace(kind=one.KEYWORD_ONLY)
                for one in others
                if is_plain(one) and one.name not in found and one.name not in said
            }
            if not any(one.kind is one.VAR_KEYWORD for one in others):
                break
    for one in list(found.values()):
        if any(one.default is kind for kind in TYPES):  # `d_model=int`: its author meant a note
            found[one.name] = one.replace(default=one.empty, annotation=one.default)
    read = keywords_read(owner.__init__ if inspect.isclass(owner) else owner) if rest else {}
    for word, default in read.items():
        if word not in found and default is not None:
            found[word] = inspect.Parameter(word, inspect.Parameter.KEYWORD_ONLY, default=default)
    return list(found.values())


def handed_on(init: Any) -> set[str]:
    """Return the keywords that a constructor hands on to that of its base, which nobody can say beside it."""
    with suppress(OSError, TypeError, SyntaxError):
        calls = [node for node in ast.walk(tree_of(init)) if isinstance(node, ast.Call)]
        of_bases = (one for one in calls if isinstance(one.func, ast.Attribute) and one.func.attr == "__init__")
        return {word.arg for one in of_bases for word in one.keywords if word.arg is not None}
    return set()


def unmade(name: str, given: Sequence[inspect.Parameter], sizes: Sizes, error: Exception) -> UserError:
    """Return the error that says of what a class could not be made."""
    missing = [one.name for one in given if one.default is one.empty and sizes.value(one.name) is None]
    why = error_line(error)
    if missing:
        words = " and ".join(repr(word) for word in missing)
        return UncalledError(
            f"{name} needs {words}, which nobody here knows ({why}); a layer that is made can be checked"
        )
    return UncalledError(f"{name} cannot be made of {', '.join(one.name for one in given) or 'nothing'}: {why}")
