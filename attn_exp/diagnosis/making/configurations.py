"""Objects that hold all that a class needs: made of their own class, or handing out fields as they are asked for."""

from __future__ import annotations

import enum
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import fields, is_dataclass
from typing import Any

from attn_exp.diagnosis.asking.offer import parameters_of, plain
from attn_exp.diagnosis.asking.uses import Use, keywords_read, owner_of
from attn_exp.diagnosis.making.guessing import (
    OF_EVALUATION,
    About,
    counts_tokens,
    ends_in_size,
    guesses,
    is_layer,
    resolved,
)
from attn_exp.diagnosis.matrices.module_sizes import CAUSAL, CONFIG, FEW, Sizes
from attn_exp.errors import UserError

ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
"""How positions are turned, as configurations of transformers say it."""


CLIPS = re.compile("clip(qkv|values?|logits?|scores?|min|max)?|(qkv|logits?|scores?|attn)clip(ping|value)?")
"""What a configuration calls the number at which queries, keys, values or scores are clipped."""
CLIPS_NOTHING = 1e9
"""No number of a layer is as large."""


class Asked(dict[str, Any]):
    """A configuration that hands out fields and keys as they are asked for, and notes which of them nobody knows.

    `choose` returns what a field is given; it is asked with the name of the field and what may be guessed.
    """

    def __init__(self, sizes: Sizes, choose: Callable[[str, list[Any]], Any], known_of: About) -> None:
        super().__init__()
        for name, value in (("_sizes", sizes), ("_choose", choose), ("_about", known_of), ("_given", {})):
            object.__setattr__(self, name, value)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = self._given
        if name not in known:
            known[name] = self._field(name)
        return known[name]

    def _field(self, name: str) -> Any:
        word, use = plain(name), self._about.uses.get(name, Use())
        if name in ("_attn_implementation", "attn_implementation"):
            return "eager"
        if use.holds_others and use.keys + use.fields != ["value"]:
            return Asked(self._sizes, self._choose, self._about)
        if "drop" in word and not use.made_from:
            return self._sizes.dropout
        value = self._sizes.value(name)
        if value is not None and not (use.is_switch and type(value) is int):
            return self._choose(name, [value, FEW]) if counts_tokens(word) else value
        if word in ROPES:
            return self._sizes.size if word == "rotarydim" else ROPES[word]
        if use.optional:
            raise AttributeError(f"a configuration that is asked for fields has no {name!r}")
        said = guesses(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY), self._sizes, self._about)
        said = [None, CLIPS_NOTHING] if CLIPS.fullmatch(word) else said  # what clips at 0 leaves nothing
        if said[0] is self._sizes.width and not (ends_in_size(word) or use.is_length):
            usual = word.startswith("scale") and "by" not in word  # most others switch something on that nobody needs
            said = [usual, not usual, *said]
        if any(part in word for part in ("act", "nonlin")):
            said = [*said, "gelu", "relu"]
        return self._choose(name, [*said, Asked(self._sizes, self._choose, self._about)])

    def __setattr__(self, name: str, value: Any) -> None:
        self._given[name] = value

    def __getitem__(self, name: Any) -> Any:
        try:
            return getattr(self, str(name))
        except AttributeError as error:
            raise KeyError(name) from error

    def __setitem__(self, name: Any, value: Any) -> None:
        self._given[str(name)] = value

    def __contains__(self, name: Any) -> bool:
        return str(name) in self._given or self._sizes.value(str(name)) is not None

    def __bool__(self) -> bool:
        return True

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or the default where nobody knows it."""
        if name in self._given:
            return self._given[name]
        value = self._sizes.value(name)
        is_size = default is None or (type(default) is int and type(value) is int)
        return value if value is not None and (is_size or "drop" in plain(name)) else default

    def pop(self, name: str, default: Any = None) -> Any:
        """Return a field, or the default where nobody knows it."""
        return self.get(name, default) if default is not None or name in self else self[name]

    def setdefault(self, name: str, default: Any = None) -> Any:
        """Return a field, or the default where nobody knows it, which it has then."""
        self._given[name] = self.get(name, default)
        return self._given[name]

    def copy(self) -> Asked:
        """Return itself, as all copies are alike."""
        return self

    def __deepcopy__(self, memo: Any) -> Asked:
        return self


class AskedFields:
    """A configuration that hands out fields as they are asked for, and is no mapping: Flax takes those apart."""

    def __init__(self, asked: Asked) -> None:
        vars(self)["asked"] = asked

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(vars(self)["asked"], name)

    def __getitem__(self, name: Any) -> Any:
        return vars(self)["asked"][name]

    def __deepcopy__(self, memo: Any) -> AskedFields:
        return self


ROPES = {"ropetheta": 10000.0, "ropebase": 10000.0, "rotarybase": 10000.0, "rotaryembbase": 10000.0, "rotarypct": 1.0,
         "partialrotaryfactor": 1.0, "rotarydim": 0, "ropescaling": None, "ropeparameters": ROPE, "slidingwindow": None,
         "layertypes": ["full_attention"], "attentiontype": "full_attention"}  # fmt: skip
"""What fields about positions and kinds of attention are given."""


def config_class(given: inspect.Parameter, owner: Any) -> Any:
    """Return the class of a configuration: the annotation of the parameter, or the only such class beside the owner."""
    note = None if given.annotation is given.empty else resolved(given.annotation, owner)
    if (
        inspect.isclass(note)
        and note.__module__ not in NO_SETTINGS
        and not (issubclass(note, enum.Enum) or is_layer(note))
    ):
        return note
    if not is_config(plain(given.name)):
        return None
    owner = owner_of(owner)
    space = vars(sys.modules.get(owner.__module__, typing))
    space = getattr(getattr(owner, "__init__", None), "__globals__", space)
    beside = [
        value for name, value in space.items()
        if inspect.isclass(value) and value.__module__ == owner.__module__ and not inspect.isabstract(value)
        and name.lower().endswith(("config", "args", "cfg", "hparams", "params"))
        and not issubclass(value, dict)  # such a mapping does not say what it holds; the code that reads it does
    ]  # fmt: skip
    return beside[0] if len(beside) == 1 else None


NO_SETTINGS = ("builtins", "typing", "collections.abc", "pathlib")


def is_config(word: str) -> bool:
    """Say whether a parameter of that name holds all others."""
    return word in CONFIG or word.endswith(("config", "configs", "configuration", "cfg", "args", "hparams", "opts"))


def configured(kind: Any, sizes: Sizes, choose: Callable[[str, list[Any]], Any], known_of: About) -> Any:
    """Return a configuration of a class with the sizes that it knows; the rest are its own defaults."""
    if kind in (dict, Mapping):
        return Asked(sizes, choose, known_of)
    words, usual = field_names(kind), own_defaults(kind)
    said = {name: value for name in words if (value := field_value(name, sizes)) is not None}
    said = {
        name: value
        for name, value in said.items()
        if type(value) is bool or not isinstance(usual.get(name), str | bool)
    }  # `hidden_act` is no size
    said |= {name: choose(name, [value, FEW]) for name, value in said.items() if counts_tokens(plain(name))}
    said |= {name: configured(note, sizes, choose, known_of) for name, note in inner_settings(kind)}
    attempts: list[Callable[[], Any]] = [lambda: kind(**said), lambda: with_fields(kind(), said)]
    needed = [one for one in parameters_of(kind, kind.__name__) if one.default is one.empty and is_plain(one)]
    chosen = {one.name: guesses(one, sizes, known_of) for one in needed if one.name not in said}
    attempts.append(lambda: kind(**said, **{name: choose(name, values) for name, values in chosen.items()}))
    attempts.append(lambda: with_fields(object.__new__(kind), said))
    error: Exception | None = None
    for attempt in attempts:
        try:
            made = attempt()
        except Exception as raised:
            error = error or raised
            continue
        for name in ("_attn_implementation",):
            if hasattr(made, "attn_implementation") or hasattr(made, name):
                with suppress(Exception):
                    setattr(made, name, "eager")
        return made
    assert error is not None
    raise error


def own_defaults(kind: Any) -> dict[str, Any]:
    """Return what the constructor of a configuration would take for its arguments."""
    with suppress(UserError):
        return {one.name: one.default for one in parameters_of(kind, kind.__name__)}
    return {}


def field_value(name: str, sizes: Sizes) -> Any:
    """Return what a field of a configuration is given, or None where its own default is best."""
    word = plain(name)
    if "drop" in word:
        return sizes.dropout
    if word in ROTARY or word in OF_EVALUATION:
        return OF_EVALUATION.get(word, sizes.size)
    if word in ("layeridx", "vocabsize") or "intermediate" in word or "layers" in word or "ffn" in word:
        return None
    value = sizes.value(name)
    return None if isinstance(value, bool) and word not in CAUSAL else value


def inner_settings(kind: Any) -> Iterator[tuple[str, Any]]:
    """Yield the fields of a dataclass that are settings themselves, with their classes."""
    for one in fields(kind) if is_dataclass(kind) else ():
        note = resolved(one.type, kind)
        if inspect.isclass(note) and is_dataclass(note) and note is not kind:
            yield one.name, note


ROTARY = ("rotarydim", "ropedim", "rotaryembdim", "rotarydims", "rotarydimension", "nrot", "nelemrope")
"""What a configuration calls the numbers of a head that are turned: by default often more than a small head has."""


def field_names(kind: Any) -> list[str]:
    """Return the fields of a configuration: of a dataclass, the arguments of its constructor, or its attributes."""
    with suppress(UserError):
        given = parameters_of(kind, kind.__name__)
        named = [one.name for one in given if is_plain(one)]
        read = keywords_read(kind.__init__) if len(named) < len(given) else {}
        if named or read:
            return list(dict.fromkeys([*named, *read]))
    return [name for name in vars(kind) if not name.startswith("_") and not callable(getattr(kind, name))]


def with_fields(made: Any, said: Mapping[str, Any]) -> Any:
    """Return an object with other numbers in its fields."""
    for name, value in said.items():
        try:
            setattr(made, name, value)
        except Exception:  # frozen
            object.__setattr__(made, name, value)
    return made


def is_plain(given: inspect.Parameter) -> bool:
    """Say whether a parameter stands for one argument."""
    return given.kind not in (given.VAR_POSITIONAL, given.VAR_KEYWORD)
