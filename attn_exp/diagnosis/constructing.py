"""Makes an object of a class that nobody here knows: its parameters by name, note and default, and what fails is tried
otherwise."""

from __future__ import annotations

import ast
import inspect
import math
import re
import sys
import textwrap
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields, is_dataclass, replace
from itertools import product
from time import perf_counter
from typing import Any

from attn_exp.diagnosis.module_sizes import BIAS, CONFIG, DROPOUT, HEADS, SHARED, SIZE, Sizes, about_heads
from attn_exp.diagnosis.offer import parameters_of, plain
from attn_exp.diagnosis.sides import side_of_name
from attn_exp.errors import UncalledError, UserError
from attn_exp.own_code import error_line, held

MOST_TRIES, MOST_USED, SECONDS = 60, 10, 8.0
"""How often a class is made, how often what is made is used, and for how many seconds, before it is given up."""
LARGER = (1, 2, 4)
"""By how much heads are larger than usual, where the usual size does not do: groups of 32 numbers need so many."""
ENDS = (
    "dim", "dims", "width", "features", "feature", "feats", "feat", "hid", "hidden", "hiddens", "channels", "channel",
    "model", "embd", "embed", "emb", "state", "filters", "units", "size", "dimension", "nf", "inplanes", "planes",
    "chan", "chans", "inc", "cin", "nin", "ninp", "inp", "inputs", "dmod", "nx", "nhid",
)  # fmt: skip
"""How a word ends that says how many numbers a token has."""


def guesses(given: inspect.Parameter, sizes: Sizes) -> list[Any]:
    """Return what a parameter may be given, the likeliest first; nothing where its default is best."""
    word, note = plain(given.name), note_of(given)
    if given.default is not given.empty:
        return instead_of_default(given, word, sizes)
    if takes_projection(given):
        return [projection(side_of_name(f"{given.name}_proj").removeprefix("W_"), sizes)]
    known = sizes.value(given.name)
    rule = next((values for fits, values in FIRST if fits(word, note)), None)
    if rule is None and known is not None:
        return [known, *(value for value in (sizes.width, sizes.size, sizes.heads) if value != known)]
    rule = rule or next(values for fits, values in THEN if fits(word, note))
    return rule(sizes)


def instead_of_default(given: inspect.Parameter, word: str, sizes: Sizes) -> list[Any]:
    """Return what stands for a default that is a size; all others stay."""
    whole = type(given.default) is int and given.default > 1
    known = sizes.value(given.name)
    if word == "winit" and "haiku" in sys.modules:
        return [sys.modules["haiku"].initializers.VarianceScaling(1.0)]
    if "drop" in word and type(given.default) is float:
        return [sizes.dropout]
    if word in (*DROPOUT, *BIAS) or isinstance(given.default, bool) or (word == "numgroups" and whole):
        return []  # groups with a default are those of a norm
    exact = word in HEADS or word in SHARED or word in SIZE
    if known is not None and (exact or about_heads(word) or whole):
        return [known]
    return [sizes.width] if whole and ends_in_size(word) and given.default % 2 == 0 else []


Rule = tuple[Callable[[str, str], bool], Callable[[Sizes], list[Any]]]


def has(*parts: str) -> Callable[[str, str], bool]:
    """Return what says whether a word has one of these parts."""
    return lambda word, note: any(part in word for part in parts)


def noted(*parts: str) -> Callable[[str, str], bool]:
    """Return what says whether an annotation has one of these parts."""
    return lambda word, note: any(part in note for part in parts)


def named(*words: str) -> Callable[[str, str], bool]:
    """Return the test of a parameter that has one of these names."""
    return lambda word, note: word in words


def takes_projection(given: inspect.Parameter) -> bool:
    """Say whether a parameter needs a layer that projects, as `q_proj: nn.Module` does."""
    word, note = plain(given.name), note_of(given)
    is_layer = note.rpartition(".")[2] == "module" or "linear" in note
    named_so = side_of_name(f"{given.name}_proj")[2:] or word.endswith(("proj", "projection", "linear"))
    return bool("torch" in sys.modules and given.default is given.empty and is_layer and named_so)


def projection(side: str, sizes: Sizes) -> Any:
    """Return a layer that makes one side of attention, with the sizes that this side has."""
    inner, shared = sizes.heads * sizes.size, sizes.shared * sizes.size
    wide = {"k": shared, "v": shared, "kv": 2 * shared, "qkv": inner + 2 * shared, "o": sizes.width, "W": sizes.width}
    ends = (inner if side in ("o", "W") else sizes.width, wide.get(side, inner))
    return sys.modules["torch"].nn.Linear(*ends)


FLAGS = ("causal", "mask", "bias", "vis", "log", "verbose")
FIRST: tuple[Rule, ...] = (
    (lambda word, note: "drop" in word and "module" in note, lambda sizes: [dropout_module(sizes), sizes.dropout]),
    (has("drop"), lambda sizes: [sizes.dropout, dropout_module(sizes)]),
    (has("dtype"), lambda sizes: dtypes()),
    (noted("dtype"), lambda sizes: dtypes()),
    (has("device"), lambda sizes: ["cpu"]),
    (noted("bool"), lambda sizes: [False, True]),
)
"""What is surer than any size of that name."""
THEN: tuple[Rule, ...] = (
    (has("layer", "idx", "index"), lambda sizes: [0, 1]),
    (named("i", "depth"), lambda sizes: [0, 1]),
    (named("n", "nb", "num", "count", "parts"), lambda sizes: [sizes.heads, sizes.width, sizes.size]),
    (has("temperature"), lambda sizes: [math.sqrt(sizes.size)]),
    (named("initscale"), lambda sizes: [1.0]),
    (named("scale", "scaling", "gain"), lambda sizes: [1 / math.sqrt(sizes.size)]),
    (has("eps"), lambda sizes: [1e-5]),
    (noted("float"), lambda sizes: [0.0, 1.0]),
    (lambda word, note: word.startswith(("is", "use", "has", "with", "do")), lambda sizes: [False, True, None]),
    (named(*FLAGS), lambda sizes: [False, True, None]),
    (has("window"), lambda sizes: [(2, 4), 256]),
    (has("len", "positions", "tokens"), lambda sizes: [256]),
    (noted("str"), lambda sizes: ["", "default", None]),
    (named("name", "type", "mode"), lambda sizes: ["", "default", None]),
    (named("rngs"), lambda sizes: nnx_rngs()),
    (lambda word, note: word == "key" and "jax" in sys.modules, lambda sizes: jax_key()),
    (noted("int"), lambda sizes: [sizes.width, sizes.heads, sizes.size, 1, None]),
    (lambda word, note: ends_in_size(word), lambda sizes: [sizes.width, sizes.heads, sizes.size, 1, None]),
    (has(""), lambda sizes: [sizes.width, None, False, sizes.heads, 0.0, sizes.size, 1]),
)
"""What a parameter is given of which no size is known, by its name and its annotation."""


def ends_in_size(word: str) -> bool:
    """Say whether a name ends as those of sizes do."""
    return any(word.endswith(end) for end in ENDS)


def note_of(given: inspect.Parameter) -> str:
    """Return what a parameter's annotation says, in small letters."""
    note = given.annotation
    return (
        "" if note is given.empty else (note if isinstance(note, str) else getattr(note, "__name__", str(note))).lower()
    )


def dropout_module(sizes: Sizes) -> Any:
    """Return what drops as much as is said, which is mostly nothing."""
    torch = sys.modules.get("torch")
    return torch.nn.Dropout(sizes.dropout) if torch is not None else sizes.dropout


def dtypes() -> list[Any]:
    """Return the types that a constructor may want, the likeliest first."""
    torch = sys.modules.get("torch")
    return [torch.float64, None, "float32"] if torch is not None else [None, "float32"]


def nnx_rngs() -> list[Any]:
    """Return the random streams that a module of Flax NNX wants."""
    nnx: Any = sys.modules.get("flax.nnx")
    return [nnx.Rngs(0)] if nnx is not None else [None]


def jax_key() -> list[Any]:
    """Return the random key that a module of JAX wants."""
    import jax  # noqa: PLC0415 - the class is one of JAX

    return [jax.random.PRNGKey(0)]


# Configurations


ROPE = {"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 1.0}
"""How positions are turned, as configurations of transformers say it."""


class Asked:
    """A configuration that hands out fields as they are asked for, and notes which of them nobody knows.

    `choose` returns what a field is given; it is asked with the name of the field and what may be guessed.
    """

    def __init__(self, sizes: Sizes, choose: Callable[[str, list[Any]], Any]) -> None:
        object.__setattr__(self, "_sizes", sizes)
        object.__setattr__(self, "_choose", choose)
        object.__setattr__(self, "_given", {})

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        known = self._given
        if name not in known:
            known[name] = self._field(name)
        return known[name]

    def _field(self, name: str) -> Any:
        word = plain(name)
        if name in ("_attn_implementation", "attn_implementation"):
            return "eager"
        if "drop" in word:
            return self._sizes.dropout
        value = self._sizes.value(name)
        if value is not None:
            return value
        ropes = {"ropetheta": 10000.0, "rotarypct": 1.0, "partialrotaryfactor": 1.0, "rotarydim": self._sizes.size,
                 "ropescaling": None, "ropeparameters": ROPE, "slidingwindow": None, "layertypes": ["full_attention"],
                 "attentiontype": "full_attention"}  # fmt: skip
        if word in ropes:
            return ropes[word]
        said = guesses(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY), self._sizes)
        if said[0] is self._sizes.width and not ends_in_size(word):
            usual = word.startswith("scale") and "by" not in word  # most others switch something on that nobody needs
            said = [usual, not usual, *said]
        return self._choose(name, [*said, Asked(self._sizes, self._choose)])

    def __setattr__(self, name: str, value: Any) -> None:
        self._given[name] = value

    def __getitem__(self, name: Any) -> Any:
        return getattr(self, str(name))

    def __contains__(self, name: Any) -> bool:
        return self._sizes.value(str(name)) is not None

    def get(self, name: str, default: Any = None) -> Any:
        """Return a field, or the default where nobody knows it."""
        value = self._sizes.value(name)
        return default if value is None else value

    def __deepcopy__(self, memo: Any) -> Asked:
        return self


def config_class(given: inspect.Parameter, owner: Any) -> Any:
    """Return the class of a configuration: the annotation of the parameter, or the only such class beside the owner."""
    space = vars(sys.modules.get(owner.__module__, None)) if owner.__module__ in sys.modules else {}
    init = getattr(owner, "__init__", None)
    space = getattr(init, "__globals__", space)
    note = None if given.annotation is given.empty else given.annotation
    if isinstance(note, str):
        note = space.get(note.partition("|")[0].strip().strip("'\""))
    options = [one for one in typing.get_args(note) if inspect.isclass(one)]
    note = options[0] if options and not inspect.isclass(note) else note
    if (
        inspect.isclass(note)
        and note.__module__ != "builtins"
        and note not in (int, float, str, bool, dict, object)
        and note.__module__ != "typing"
    ):
        return note
    if not is_config(plain(given.name)):
        return None
    beside = [
        value for name, value in space.items()
        if inspect.isclass(value) and value.__module__ == owner.__module__
        and name.lower().endswith(("config", "args", "cfg", "hparams", "params"))
    ]  # fmt: skip
    return beside[0] if len(beside) == 1 else None


def is_config(word: str) -> bool:
    """Say whether a parameter of that name holds all others."""
    return word in CONFIG or word.endswith(("config", "configs", "configuration", "cfg", "args", "hparams", "opts"))


def configured(kind: Any, sizes: Sizes, choose: Callable[[str, list[Any]], Any]) -> Any:
    """Return a configuration of a class with the sizes that it knows; the rest are its own defaults."""
    if kind in (dict, Mapping):
        return Asked(sizes, choose)
    words = field_names(kind)
    said = {name: value for name in words if (value := field_value(name, sizes, words)) is not None}
    attempts: list[Callable[[], Any]] = [lambda: kind(**said), lambda: with_fields(kind(), said)]
    needed = [one for one in parameters_of(kind, kind.__name__) if one.default is one.empty and is_plain(one)]
    attempts.append(lambda: kind(**{one.name: choose(one.name, guesses(one, sizes)) for one in needed} | said))
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


def field_value(name: str, sizes: Sizes, words: Sequence[str]) -> Any:
    """Return what a field of a configuration is given, or None where its own default is best."""
    word = plain(name)
    if "drop" in word:
        return sizes.dropout
    if word in ROTARY:
        return sizes.size
    if word in ("layeridx", "vocabsize") or "intermediate" in word or "layers" in word or "ffn" in word:
        return None
    value = sizes.value(name)
    return None if isinstance(value, bool) else value


ROTARY = ("rotarydim", "ropedim", "rotaryembdim", "rotarydims", "rotarydimension", "nrot", "nelemrope")
"""What a configuration calls the numbers of a head that are turned: by default often more than a small head has."""


def field_names(kind: Any) -> list[str]:
    """Return the fields of a configuration: of a dataclass, the arguments of its constructor, or its attributes."""
    if is_dataclass(kind):
        return [one.name for one in fields(kind)]
    with suppress(UserError):
        named = [one.name for one in parameters_of(kind, kind.__name__) if is_plain(one)]
        if named:
            return named
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


# The search


class PoorError(Exception):
    """What was made can be used, but tells little: heads of one number, say; `made` is what `works` would return."""

    def __init__(self, made: Any, said: str) -> None:
        super().__init__(said)
        self.made = made


@dataclass
class Choices:
    """What was chosen where several values are possible, in the order in which they were asked for."""

    places: dict[str, int] = field(default_factory=dict)
    options: dict[str, int] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)

    def choose(self, name: str, values: list[Any]) -> Any:
        """Return the value that is to be tried now."""
        self.options[name] = len(values)
        return values[min(self.places.get(name, 0), len(values) - 1)]

    def advance(self, error: str) -> bool:
        """Go on: with a value that the error names, else with the last one asked for; False where all were tried."""
        lacks = re.search(r"(?<!'NoneType' object )has no attribute '(\w+)'", error)
        if lacks and lacks[1] not in self.missing and not lacks[1].startswith("__"):
            self.missing.append(lacks[1])
            return True
        names = list(self.options)
        named = [name for name in names if name in error]
        for name in [*reversed(named), *(one for one in reversed(names) if one not in named)]:
            if self.places.get(name, 0) + 1 < self.options[name]:
                self.places[name] = self.places.get(name, 0) + 1
                return True
            self.places[name] = 0
        return False


def ladder(sizes: Sizes) -> Iterator[Sizes]:
    """Yield sizes: those asked for, then with larger heads."""
    for factor in LARGER:
        yield replace(sizes, width=sizes.width * factor, size=sizes.size * factor)


def construct(kind: Any, name: str, sizes: Sizes, works: Callable[[Any, Sizes], Any]) -> Any:
    """Return what `works` says of the first object of a class with which it does not raise an error.

    Raises:
        UserError: none does, within some tens of tries and some seconds; it says the error of the first.
    """
    given = [one for one in parameters_of(kind, name) if is_plain(one)]
    needed = [one for one in given if one.default is one.empty]
    start, tries = perf_counter(), 0
    failed, refused, poor = list[Exception](), list[Exception](), list[Any]()
    for only_needed, of_size in product((False, True), tuple(ladder(sizes))):
        choices, goes_on = Choices(), True
        while goes_on and tries < MOST_TRIES and len(refused) + len(poor) < MOST_USED * (1 + only_needed):
            if tries and perf_counter() - start > SECONDS:
                break
            tries += 1
            choices.options.clear()
            try:
                with held():
                    made = kind(**arguments(kind, needed if only_needed else given, of_size, choices))
            except Exception as error:
                failed.append(error)
                goes_on = choices.advance(error_line(error))
                continue
            try:
                return works(made, of_size)
            except PoorError as error:
                poor.append(error.made)
                goes_on = choices.advance("")
            except Exception as error:
                refused.append(error)
                goes_on = choices.advance(error_line(error))
        if poor:
            return poor[0]
    raise refused[0] if refused else unmade(name, given, sizes, failed[0])


def unmade(name: str, given: Sequence[inspect.Parameter], sizes: Sizes, error: Exception) -> UncalledError:
    """Return the error that says of what a class could not be made."""
    missing = [one.name for one in given if one.default is one.empty and sizes.value(one.name) is None]
    why = error_line(error)
    if missing:
        words = " and ".join(repr(word) for word in missing)
        return UncalledError(
            f"{name} needs {words}, which nobody here knows ({why}); a layer that is made can be checked"
        )
    return UncalledError(f"{name} cannot be made of {', '.join(one.name for one in given) or 'nothing'}: {why}")


def arguments(kind: Any, given: Sequence[inspect.Parameter], sizes: Sizes, choices: Choices) -> dict[str, Any]:
    """Return what a class is made of in this try."""
    said: dict[str, Any] = {}
    for one in given:
        settings = config_class(one, kind) if one.default is one.empty else None
        if settings is not None and not issubclass(settings, tuple) and not is_torch_thing(settings):
            said[one.name] = configured(settings, sizes, choices.choose)
            fields_asked = Asked(sizes, choices.choose)
            lacking = [name for name in choices.missing if not hasattr(said[one.name], name)]
            with_fields(said[one.name], {name: getattr(fields_asked, name) for name in lacking})
            continue
        if one.default is one.empty and is_config(plain(one.name)):
            said[one.name] = Asked(sizes, choices.choose)
            continue
        if one.default is None and is_config(plain(one.name)):
            said[one.name] = choices.choose(one.name, [None, Asked(sizes, choices.choose)])
            continue
        values = [*modules_beside(kind, one, sizes), *compared_with(kind, one), *guesses(one, sizes)]
        if values:
            said[one.name] = choices.choose(one.name, values)
    return said


def compared_with(kind: Any, given: inspect.Parameter) -> list[str]:
    """Return the texts that a class compares a parameter with that needs one, or an attribute of its name."""
    if given.default is not given.empty or "str" not in note_of(given):
        return []
    try:
        tree = ast.parse(textwrap.dedent(inspect.getsource(getattr(kind, "owner", kind))))
    except (OSError, TypeError, SyntaxError):
        return []
    found = list[str]()
    for node in ast.walk(tree):
        sides = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
        if any(getattr(side, "attr", getattr(side, "id", "")) == given.name for side in sides):
            parts = (part for side in sides for part in ast.walk(side) if isinstance(part, ast.Constant))
            found += [part.value for part in parts if isinstance(part.value, str)]
    return list(dict.fromkeys(found))


def modules_beside(kind: Any, given: inspect.Parameter, sizes: Sizes) -> list[Any]:
    """Return modules of the other classes of a file, where a parameter may want one: the attention itself, say."""
    if given.default is not given.empty or not plain(given.name).endswith(("attention", "attn", "module", "layer")):
        return []
    space = vars(sys.modules[kind.__module__]) if kind.__module__ in sys.modules else {}
    space = getattr(getattr(kind, "__init__", None), "__globals__", space)
    others = [value for value in space.values() if inspect.isclass(value) and value is not kind
              and value.__module__ == kind.__module__ and any(home.__module__.startswith("torch.nn")
                                                              for home in value.__mro__)]  # fmt: skip
    made = []
    for other in others:
        with suppress(Exception):
            made.append(construct(other, other.__name__, sizes, lambda module, _: module))
    return made


def is_torch_thing(kind: Any) -> bool:
    """Say whether a class is one of a library: a type of numbers, a device or a module."""
    return kind.__module__.partition(".")[0] in (
        "torch",
        "jax",
        "numpy",
        "jaxlib",
        "flax",
        "jaxtyping",
        "haiku",
    ) or any(base.__module__.startswith("torch.nn") for base in kind.__mro__)
