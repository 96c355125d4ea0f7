"""Kinds of values, written on a field as `Annotated[int, at_least(1)]`: what a setting accepts and what it refuses.

First come the kinds of single values, then those of lists, words, tokens and mappings. A field without a kind gets the
kind of its type: `int`, `float`, `bool`, `str`, ... The last part of the module reads a dataclass according to the
kinds of its fields.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, fields, is_dataclass
from math import isfinite
from numbers import Integral, Real
from types import NoneType, UnionType
from typing import Annotated, Any, NamedTuple, NoReturn, TypeVar, Union, get_args, get_origin, get_type_hints

from attn_exp import registry
from attn_exp.errors import UserError, brief, shown, unknown

Schema = TypeVar("Schema")


class Kind(NamedTuple):
    """What a setting accepts.

    - `read`: takes a value and its key. It returns the converted value, or raises an error that names the key.
    - `takes`: describes the accepted values, with their bounds.
    - `endless`: the value that means "no limit", if there is one. It counts as greater than all others.
    """

    read: Callable[[Any, str], Any]
    takes: str = "anything"
    endless: Any = None


class Says(NamedTuple):
    """The meaning of a setting, as `--help` prints it; `unset` is printed as its default if the default is empty."""

    meaning: str
    unset: str = ""


def refuse(value: Any, key: str, expected: str) -> NoReturn:
    raise UserError(f"{brief(key)}={brief(shown(value))}: expected {expected}")


def is_whole(value: Any) -> bool:
    return not isinstance(value, bool) and isinstance(value, Integral)


def is_finite(value: Any) -> bool:
    """Return whether a value is a number that fits a float; booleans do not count."""
    try:
        return not isinstance(value, bool) and isinstance(value, Real) and isfinite(float(value))
    except OverflowError:
        return False


def accepting(fits: Callable[[Any], bool], expected: str, convert: Callable[[Any], Any] = lambda value: value) -> Kind:
    return Kind(lambda value, key: convert(value) if fits(value) else refuse(value, key, expected), expected)


AS_IS = Kind(lambda value, key: value)
FLAG = accepting(lambda value: isinstance(value, bool), "true or false")
WHOLE = accepting(is_whole, "a whole number")
NUMBER = accepting(is_finite, "a finite number", float)
TEXT = accepting(lambda value: isinstance(value, str), "a word")


ANY_TEXT = accepting(lambda value: isinstance(value, str | int | float), "text, in quotes if it contains commas", shown)
"""Text, even if it looks like a number or a boolean."""

AT_LEAST_0 = "a whole number of at least 0"
LARGEST = 2**63 - 1  # the largest array index


def at_least(least: int, expected: str = "", most: int | None = LARGEST, endless: int | None = None) -> Kind:
    """Accept integers from `least` to `most`, by default the largest array index; None means no maximum."""

    takes = expected or f"a whole number of at least {least}"

    def read(value: Any, key: str) -> Any:
        if not is_whole(value) or value < least:
            refuse(value, key, takes)
        return value if most is None or value <= most else refuse(value, key, f"at most {most}")

    return Kind(read, takes, endless)


ANY_SEED = accepting(is_whole, AT_LEAST_0)
"""An integer; negative ones are refused later if the generator does not accept them."""


def above(bound: float) -> Kind:
    return accepting(lambda value: is_finite(value) and value > bound, f"a number above {bound:g}", float)


PositiveInt = Annotated[int, at_least(1)]
PositiveFloat = Annotated[float, above(0)]
FROM_ZERO = accepting(lambda value: is_finite(value) and value >= 0, "a number of at least 0", float)


def between(least: float, most: float) -> Kind:
    takes = f"a number from {least:g} to {most:g}"
    return accepting(lambda value: is_finite(value) and least <= value <= most, takes, float)


def choice(*choices: str) -> Kind:
    def read(value: Any, key: str) -> str:
        if value not in choices:
            raise UserError(unknown(shown(value), choices, key))
        return str(value)

    return Kind(read, " or ".join(choices))


MULTIPLIER = accepting(
    lambda value: isinstance(value, bool) or is_finite(value),
    "true, false, or the multiplier as a number",
    lambda value: value if isinstance(value, bool) else float(value),
)
FILE_NAME = accepting(
    lambda value: isinstance(value, str) and bool(re.fullmatch(r"(\w([\w. -]*[\w-])?)?", value)),
    "a folder name made of letters, digits, dots and dashes",
)
"""A folder name that is valid on every system, or an empty string."""
FOLDER = accepting(
    lambda value: isinstance(value, str) and bool(value.strip()), "a folder, such as outputs, or . for the current one"
)
ARRAYS = accepting(lambda value: isinstance(value, Mapping), "arrays by name, such as W_q: [[1]]")


def words_of(*choices: str) -> Kind:
    """Accept one of these words or a list of them; duplicates are dropped."""

    def read(value: Any, key: str) -> tuple[str, ...]:
        words = [value] if isinstance(value, str) else TEXTS.read(value, key)
        if not words:
            refuse((), key, f"at least one of {', '.join(choices)}")
        return tuple(dict.fromkeys(choice(*choices).read(word, key) for word in words))

    return Kind(read, f"one or more of {', '.join(choices)}")


def read_texts(value: Any, key: str) -> tuple[str, ...]:
    is_list = isinstance(value, Sequence) and not isinstance(value, str)
    if not is_list or any(word is None or isinstance(word, list | tuple | Mapping) for word in value):
        refuse(value, key, "a list of words, such as [a,b]")
    return tuple(shown(word) for word in value)


TEXTS = Kind(read_texts, "a list of words")


def read_words(value: Any, key: str) -> tuple[str, ...]:
    """Read one word or several; `none` and null mean an empty list."""
    words = (value,) if isinstance(value, str) else () if value is None else read_texts(value, key)
    return tuple(word for word in words if word != "none")


WORDS = Kind(read_words, "a word, or a list of words")
TOKEN_FILES = (".txt", ".csv", ".tsv", ".json", ".npz")
TOKENS = "a list of names, their number, or a file of names"


def read_tokens(value: Any, key: str) -> tuple[str, ...] | int | str:
    if isinstance(value, str) and value.lower().endswith(TOKEN_FILES):
        return value
    if isinstance(value, bool | float):
        refuse(value, key, TOKENS)
    if not isinstance(value, int):
        return read_texts(value, key) or refuse(value, key, "at least one name")
    return int(at_least(1).read(value, key))


TOKEN_NAMES = Kind(read_tokens, TOKENS)
NESTED = re.compile(r"\s*\[.*(\[|,\s*)\[.*\]\s*")
"""A list of lists, which a user may intend as several sentences."""
SENTENCE = "text, such as 'she likes hot coffee', or a list of words"


def read_sentence(value: Any, key: str) -> str | tuple[str, ...]:
    if isinstance(value, list | tuple):
        return read_texts(value, key)
    if isinstance(value, str) and NESTED.fullmatch(value):
        refuse(value, key, "one sentence; -m runs several, as in -m 'embeddings.text=the cat,a dog'")
    return refuse(value, key, SENTENCE) if isinstance(value, bool | Mapping) or value is None else str(value)


TEXT_OR_WORDS = Kind(read_sentence, SENTENCE)


def list_of(kind: Kind) -> Kind:

    def read(value: Any, key: str) -> tuple[Any, ...]:
        items = () if value is None else value
        if not isinstance(items, list | tuple):
            refuse(value, key, "a list")
        return tuple(kind.read(item, f"{key}[{index}]") for index, item in enumerate(items))

    return Kind(read, f"a list; each {kind.takes}")


def read_shape(value: Any, key: str) -> tuple[int, ...]:
    """Read the shape of a matrix, or of several if there are leading axes."""
    sizes: tuple[int, ...] = list_of(at_least(1)).read(value, key)
    return sizes if len(sizes) > 1 else refuse(value, key, SHAPE.takes)


SHAPE = Kind(read_shape, "rows and columns, such as [3,4]")


def list_of_numbers(kind: Kind, expected: str) -> Kind:

    def read(value: Any, key: str) -> tuple[Any, ...]:
        if not isinstance(value, list | tuple) or not value:
            refuse(value, key, expected)
        try:
            return tuple(kind.read(number, key) for number in value)
        except UserError:
            refuse(value, key, expected)

    return Kind(read, expected)


def one_or_several(kind: Kind, expected: str) -> Kind:
    several = list_of_numbers(kind, expected)
    return Kind(lambda value, key: several.read(value if isinstance(value, list | tuple) else (value,), key), expected)


def mapping_of(kind: Kind, *names: str) -> Kind:
    def read(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            refuse(value, key, f"a mapping with the keys {', '.join(names)}")
        for name in value:
            if name not in names:
                raise UserError(unknown(f"{key}.{name}", [f"{key}.{known}" for known in names], "setting"))
        return {name: kind.read(item, f"{key}.{name}") for name, item in value.items()}

    return Kind(read, f"a mapping with the keys {', '.join(names)}")


def read_names(value: Any, key: str) -> dict[str, Any]:
    """Read a mapping of names to settings; the registries check both."""
    if not isinstance(value, Mapping):
        refuse(value, key, "a name and its settings")
    return {str(name): {} if settings is None else settings for name, settings in value.items()}


NAMES = Kind(read_names, "a name and its settings")


# The reader of dataclasses

BY_TYPE = {bool: FLAG, int: WHOLE, float: NUMBER, str: TEXT, tuple[str, ...]: TEXTS, Mapping[str, Any]: NAMES}

OPEN = "???"
"""Hydra's marker for a missing value. A required setting must not have it; in any other setting it is plain text."""


def read_fields(schema: type, values: Any, path: str) -> dict[str, Any]:
    """Read each value of a mapping according to its field; refuse unknown and missing keys."""
    check_keys(schema, values, path)
    hints = get_type_hints(schema, include_extras=True)
    return {key: kind_of(hints[key]).read(value, f"{path}{key}") for key, value in values.items()}


def check_keys(schema: type, values: Any, path: str) -> None:
    if not isinstance(values, Mapping):
        raise UserError(f"{path.rstrip('.')}={brief(shown(values))}: expected settings, got a plain value")
    names = [field.name for field in fields(schema)]
    for key in values:
        if key not in names:
            choices = [f"{path}{name}" for name in names]
            raise UserError(unknown(f"{path}{key}", choices, "setting") if names else f"{path[:-1]} has no settings")
    for field in fields(schema):
        is_required = field.default is MISSING and field.default_factory is MISSING
        value = values.get(field.name, OPEN)
        if is_required and isinstance(value, str) and value == OPEN:
            raise UserError(f"{path}{field.name} is missing")


def kind_of(annotation: Any) -> Kind:
    if get_origin(annotation) is Annotated:
        kind = next((extra for extra in annotation.__metadata__ if isinstance(extra, Kind)), None)
        return kind or kind_of(annotation.__origin__)
    if isinstance(annotation, UnionType) or get_origin(annotation) is Union:
        return union_kind(list(get_args(annotation)))
    if is_dataclass(annotation):
        return section(annotation)  # type: ignore[arg-type] # a class: annotations are not instances
    if annotation in BY_TYPE:
        return BY_TYPE[annotation]
    return container_kind(get_origin(annotation), get_args(annotation))


def union_kind(parts: list[Any]) -> Kind:
    """Return the kind of `int | None` and the like; a union of several types accepts any value."""
    types = [part for part in parts if part is not NoneType]
    kind = kind_of(types[0]) if len(types) == 1 else AS_IS
    return optional(kind) if NoneType in parts else kind


def container_kind(origin: Any, arguments: tuple[Any, ...]) -> Kind:
    """Return the kind of a list of sections or of a mapping from names to sections; others accept any value."""
    if origin is tuple and is_dataclass(arguments[0]):
        return list_of(kind_of(arguments[0]))
    if origin is Mapping and is_dataclass(arguments[1]):
        return by_name(kind_of(arguments[1]))
    return AS_IS


def optional(kind: Kind) -> Kind:
    return kind._replace(read=lambda value, key: None if value is None else kind.read(value, key))


def section(schema: type) -> Kind:
    """Accept settings by name, and return an instance of this dataclass."""
    return Kind(lambda value, key: schema(**read_fields(schema, value, f"{key}.")))


def array_or(schema: type) -> Kind:
    """Accept an array as it is, or settings by name, such as those of a `Draw`."""
    return Kind(lambda value, key: section(schema).read(value, key) if isinstance(value, Mapping) else value)


def by_name(kind: Kind) -> Kind:
    def read(value: Any, key: str) -> dict[str, Any]:
        if not isinstance(value, Mapping):
            refuse(value, key, "a name and its settings")
        return {str(name): kind.read(item, f"{key}.{name}") for name, item in value.items()}

    return Kind(read)


def make(schema: type[Schema], settings: Any, key: str) -> Schema:
    """Return an instance of a dataclass with these settings.

    Raises:
        UserError: a setting is unknown or missing, or a value is invalid.
    """
    values = read_fields(schema, settings, f"{key}.")
    try:
        return schema(**values)
    except (TypeError, ValueError) as error:
        raise UserError(f"{key}: {error}") from error


def own_kinds(schema: type) -> dict[str, Kind]:
    """Return the kind of each field with an annotation such as `Annotated[int, at_least(1)]`, by field name.

    Reading the annotations takes ten times as long as creating an object, so each class calls this only once.
    """
    hints = get_type_hints(schema, include_extras=True)
    return {name: kind_of(hint) for name, hint in hints.items() if get_origin(hint) in (Annotated, Union)}


def read_own(instance: Any, kinds: Mapping[str, Kind]) -> None:
    """Validate an object created in Python against its fields, and store the converted values."""
    for field, kind in kinds.items():
        value = kind.read(getattr(instance, field), f"{registry.name_of(instance)} {field}")
        object.__setattr__(instance, field, value)
