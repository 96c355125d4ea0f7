"""What a class may be given for a parameter of its constructor: by its name, its note, its default and what it does.

The likeliest comes first; an error of the class says that it was something else.
"""

from __future__ import annotations

import enum
import inspect
import math
import re
import sys
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np

from attn_exp.diagnosis.asking.chance import is_of_chance, sources_of_chance
from attn_exp.diagnosis.asking.offer import is_required, parameters_of, plain
from attn_exp.diagnosis.asking.sides import side_of_name
from attn_exp.diagnosis.asking.uses import Use, is_of_a_library, lengths_compared, owner_of, uses_of
from attn_exp.diagnosis.code.libraries import modules_named
from attn_exp.diagnosis.matrices.module_sizes import (
    BIAS,
    DROPOUT,
    FEW,
    HEADS,
    IMAGES,
    LENGTH,
    ROOM,
    SHARED,
    SIZE,
    Sizes,
    about_heads,
    is_switch_of_causal,
)
from attn_exp.diagnosis.matrices.pure_layers import kind_of

ENDS = (
    "dim", "dims", "width", "features", "feature", "feats", "feat", "hid", "hidden", "hiddens", "channels", "channel",
    "model", "embd", "embed", "emb", "state", "filters", "units", "size", "dimension", "nf", "inplanes", "planes",
    "chan", "chans", "inc", "cin", "nin", "ninp", "inp", "inputs", "dmod", "nx", "nhid", "cout", "outc", "nout",
    "inch", "outch", "ch", "filter", "units",
)  # fmt: skip
"""How a word ends that says how many numbers a token has."""


class Later:
    """A value that is made when an attempt needs it, so that no two attempts share one."""

    def __init__(self, make: Any, *arguments: Any) -> None:
        self.make = partial(make, *arguments)


@dataclass(frozen=True)
class About:
    """What is known of a class: what its code does with its parameters, its library, and what it is a part of."""

    kind: Any = None
    uses: Mapping[str, Use] = field(default_factory=dict)
    library: str = "torch"
    within: tuple[Any, ...] = ()
    """Classes that are being made: none of them is made of itself."""
    make: Callable[..., Any] | None = None
    """What makes an object of another class."""
    is_nnx: bool = False
    insisted: Sequence[int] = ()
    """Numbers with which its code compares something, as the width of x."""


def about(kind: Any, within: tuple[Any, ...], make: Callable[..., Any]) -> About:
    """Return what is known of a class."""
    owner = owner_of(kind)
    home = kind_of(owner)
    library = home.replace("nnx", "linen") or library_of(owner)
    return About(
        owner, uses_of(kind), library, (*within, owner), make, is_nnx=home == "nnx", insisted=lengths_compared(owner)
    )


def library_of(owner: Any) -> str:
    """Return the library whose arrays a class of no library works with: PyTorch's, where nothing says another."""
    named = modules_named(owner)
    return next((name for name in ("torch", "jax", "numpy") if name in named), "torch")


def guesses(given: inspect.Parameter, sizes: Sizes, known_of: About) -> list[Any]:
    """Return what a parameter may be given, the likeliest first; nothing where its default is best."""
    note = note_of(given)
    may_be_jax = "jax" in sys.modules and known_of.library != "numpy"
    if may_be_jax and is_of_chance(given.name, note, made=known_of.library in OF_KEYS):
        return [*([] if given.default is given.empty else [given.default]), *sources_of_chance(given.name, note)]
    if sizes.causal is not None and is_switch_of_causal(given):
        return [sizes.causal]
    if given.default is None and known_of.library == "linen" and plain(given.name) in OF_EVALUATION:
        return [OF_EVALUATION[plain(given.name)]]  # where a call says nothing, this must
    is_flag = note == "bool" or known_of.uses.get(given.name, Use()).is_switch
    if given.default is given.empty and is_flag and is_switch_of_scale(plain(given.name)):
        return [sizes.scaled, not sizes.scaled]
    if given.default is None and sizes.causal and counts_tokens(plain(given.name)):  # of the mask that it makes then
        return [None, ROOM]
    return (
        instead_of_default(given, sizes, known_of)
        if given.default is not given.empty
        else needed(given, sizes, known_of)
    )


def needed(given: inspect.Parameter, sizes: Sizes, known_of: About) -> list[Any]:
    """Return what a parameter without a default may be given, the likeliest first."""
    word, note = plain(given.name), note_of(given)
    if takes_projection(given):
        return [projection(side_of_name(f"{given.name}_proj").removeprefix("W_"), sizes)]
    if is_side_of_image(word, known_of.kind):
        return [GRID, (GRID, GRID)]
    shapes = [] if any(kind in note for kind in (*PLAIN, "module")) else shapes_of_matrix(given.name, sizes)
    if shapes:
        return [Later(drawn, shape, known_of.library) for shape in shapes]
    use = known_of.uses.get(given.name, Use())

    known = sizes.value(given.name)
    if known is None and known_of.library == "haiku" and word in ("keysize", "valuesize"):  # of a head, as in its own
        known = sizes.size
    if (use.is_switch and not isinstance(known, bool)) or (use.is_square and known is None):
        return [ROOM, FEW, sizes.width] if use.is_square else [False, True, *([] if known is None else [known])]
    rule = next((values for fits, values in FIRST if fits(word, note)), None)
    if rule is None and known is not None:
        few = [FEW] if counts_tokens(word) else []
        usual = [known, *few, *(value for value in (sizes.width, sizes.size, sizes.heads) if value != known)]
        if word in HEADS or about_heads(word):  # what is called the size of one may be that of all; one is the last
            usual = [known, sizes.size // 2, *usual[1:], 1]
    else:
        rule = rule or next(values for fits, values in THEN if fits(word, note))
        likely = [GRID] if use.is_squared and "drop" not in word else []
        likely += [sizes.heads] if use.divides and rule in [values for _, values in THEN[OF_ANY:]] else []
        usual = [*likely, *rule(sizes)]
    if (
        known is None and known_of.library in OF_KEYS and note not in PLAIN
    ):  # nobody knows by what names people call their keys
        usual = [*usual, *sources_of_chance("", "")]
    said = [*by_note(given, sizes, known_of, usual), *by_use(given.name, use, sizes, known_of, usual)]
    found = [*said, *(value for value in usual if not any(value is one for one in said))]
    return sorted(found, key=lambda value: note == "int" and isinstance(value, tuple | list))


OF_EVALUATION = {"deterministic": True, "train": False, "training": False}
"""What says to a layer of flax, where it is made, that nothing is dropped."""
OF_KEYS = ("linen", "equinox")
"""Kinds of layers of JAX whose classes take random keys."""
PLAIN = ("int", "float", "bool", "str", "tuple", "list", "dict")
"""Annotations of what is no random key."""


def shapes_of_matrix(name: str, sizes: Sizes) -> list[tuple[int, ...]]:
    """Return the shapes that an array may have that a name says is a matrix or a bias of one; none of other names."""
    inner, side = sizes.heads * sizes.size, side_of_name(name)
    if re.fullmatch(r"[bB](_?[qkvo]|_?(query|key|value|out|qkv))|bias_?[qkvo]", name):
        return [(inner,), (sizes.width,), (3 * inner,)]
    if not (side.startswith("W_") or re.match(r"W(?!idth|indow)[A-Za-z_]", name)) or name.lower().endswith("proj"):
        return []
    wide = 3 * inner if side == "W_qkv" else inner
    square = [(sizes.width, wide), (wide, sizes.width)]
    return [*square, (sizes.heads, sizes.width, sizes.size), (sizes.width, sizes.heads, sizes.size)]


def drawn(shape: tuple[int, ...], home: str) -> Any:
    """Return an array of such a shape in the library of a kind of layers."""
    array = np.random.default_rng(list(shape)).standard_normal(shape) / math.sqrt(shape[0])
    if home == "torch":
        return sys.modules["torch"].from_numpy(array)
    return sys.modules["jax.numpy"].asarray(array) if home != "numpy" and "jax.numpy" in sys.modules else array


def by_note(given: inspect.Parameter, sizes: Sizes, known_of: About, usual: list[Any]) -> list[Any]:
    """Return what an annotation says of a parameter: one of some texts, a layer of the same file, a list of sizes."""
    note, written = resolved(given.annotation, known_of.kind), note_of(given)
    note = of_that_name(given.name, known_of) if given.annotation is given.empty else note
    found: list[Any] = []
    if typing.get_origin(note) is typing.Literal:
        found = list(typing.get_args(note))
    elif inspect.isclass(note) and issubclass(note, enum.Enum):
        found = list(note)
    elif written.removeprefix("typing.").startswith(("list[", "tuple[", "sequence[")):
        found = in_lists(usual, max(2, written.count(",") + 1))
        found = [*map(list, found)] if "tuple[" not in written and "list[" in written else found  # it may be copied
    elif inspect.isclass(note) and is_layer(note) and not is_of_a_library(note) and known_of.make is not None:
        found = [Later(known_of.make, note, sizes, known_of.within)]
    elif written.rpartition(".")[2] == "module":
        found = of_layers(given.name, sizes, known_of)
    return found


def of_that_name(name: str, known_of: About) -> Any:
    """Return the class of its file that a parameter is called by, or with whose members it is compared; or None."""
    space, use = space_of(known_of.kind), known_of.uses.get(name, Use())
    kinds = [(word, kind) for word, kind in space.items() if inspect.isclass(kind) and kind not in known_of.within]
    said = next((kind for word, kind in kinds if plain(word) == plain(name) and is_of_parts(kind)), None)
    return said or next((kind for word, kind in kinds if word in use.homes and issubclass(kind, enum.Enum)), None)


def is_of_parts(kind: Any) -> bool:
    """Say whether a class is one of layers of somebody's own, or of a few members."""
    return not is_of_a_library(kind) and (issubclass(kind, enum.Enum) or is_layer(kind))


def space_of(kind: Any) -> Mapping[str, Any]:
    """Return the names of the file of a class."""
    space = vars(sys.modules[kind.__module__]) if getattr(kind, "__module__", "") in sys.modules else {}
    known: Mapping[str, Any] = getattr(getattr(kind, "__init__", None), "__globals__", space)
    return known


def is_layer(kind: Any) -> bool:
    """Say whether a class is one of layers."""
    return bool(kind_of(kind)) or any(base.__module__.startswith("torch.nn") for base in inspect.getmro(kind))


def resolved(note: Any, kind: Any) -> Any:
    """Return an annotation as what it names, where it is written as a text; of several that it may be, the first.

    An abstract class, of which nothing can be made, says nothing.
    """
    if isinstance(note, str):
        init = getattr(kind, "__init__", None)
        space = getattr(init, "__globals__", vars(sys.modules.get(getattr(kind, "__module__", ""), typing)))
        with suppress(Exception):
            note = typing.get_type_hints(type("Noted", (), {"__annotations__": {"one": note}}), dict(space))["one"]
    if isinstance(note, str):
        return None
    options = [one for one in typing.get_args(note) if one is not type(None)]
    is_choice = typing.get_origin(note) in (typing.Union, getattr(types, "UnionType", typing.Union))
    note = options[0] if is_choice and options else note
    return None if inspect.isabstract(note) else note


def by_use(name: str, use: Use, sizes: Sizes, known_of: About, usual: list[Any]) -> list[Any]:
    """Return what the code of a class says of a parameter, or of a field of its configuration."""
    found = sorted(use.texts, key=lambda text: not any(part in text.lower() for part in ORDINARY))
    if use.made_from or (use.called and not use.taken):  # what is called with nothing makes the layer that is meant
        found += own_classes(name, known_of)
    if use.called:
        found += of_layers(name, sizes, known_of)
    if use.places and not use.holds_others:
        found += in_lists(usual, use.places)
    return found


SCALES = (
    "(use|is|do|with|apply)?(attn|attention|dot|qk)?(scale|scaled|scaling)"
    "(attn|attention|qk|dot)?(weights|scores|logits|products?)?"
)
"""What people call the switch of a scale: where it is off by default, that is no mistake."""


def is_switch_of_scale(word: str) -> bool:
    """Say whether a switch of that name says that scores are scaled."""
    return re.fullmatch(SCALES, word) is not None


ORDINARY = ("softmax", "full", "vanilla", "standard", "default", "normal", "scaled", "dot", "self", "regular", "none")
"""Parts of texts that choose what most people mean by attention."""


def of_layers(name: str, sizes: Sizes, known_of: About) -> list[Any]:
    """Return layers that a class may want by this name: those of the other classes of its file."""
    spoken_of = plain(name).endswith(("attention", "attn", "module", "layer", "fn", "block"))
    taken = known_of.uses.get(name, Use()).taken
    kinds = sorted(beside_of(known_of), key=lambda kind: not takes_so_many(kind, taken)) if spoken_of else []
    return [Later(known_of.make, one, sizes, known_of.within) for one in kinds]


def own_classes(name: str, known_of: About) -> list[Any]:
    """Return the other classes of attention in the file of a class, where what it makes layers of is called so.

    They are made with nothing.
    """
    if not any(word in plain(name) for word in ("attention", "attn")):
        return []
    kinds = [
        kind for kind in beside_of(known_of) if any(word in plain(kind.__name__) for word in ("attention", "attn"))
    ]
    return [kind for kind in kinds if not any(map(is_required, inspect.signature(kind).parameters.values()))]


def called_so(word: str, known_of: About) -> list[Any]:
    """Return the classes of the file of a class that end with a word and make what can be called, of nothing.

    What the class itself holds comes first.
    """
    space, own = space_of(known_of.kind), list(vars(known_of.kind).values()) if inspect.isclass(known_of.kind) else []
    kinds = [kind for name, kind in space.items() if inspect.isclass(kind) and plain(name).endswith(word)
             and word and "__call__" in vars(kind) and kind.__module__ == known_of.kind.__module__
             and not any(map(is_required, parameters_of(kind, name)))]  # fmt: skip
    return sorted(kinds, key=lambda kind: kind not in own)


def takes_so_many(kind: Any, count: int) -> bool:
    """Say whether a layer of a class can be called with so many arguments."""
    call = getattr(kind, "forward", getattr(kind, "call", None))
    if not count or not inspect.isfunction(call):
        return True
    given = list(inspect.signature(call).parameters.values())[1:]
    needed = [
        one for one in given if one.default is one.empty and one.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    return len(needed) <= count and (len(given) >= count or any(one.kind is one.VAR_POSITIONAL for one in given))


def beside_of(known_of: About) -> list[Any]:
    """Return the other classes of layers in the file of a class, of which it may be made."""
    kind = known_of.kind
    space = space_of(kind)
    return [] if known_of.make is None or len(known_of.within) > MOST_WITHIN else [
        value for value in space.values() if inspect.isclass(value) and value not in known_of.within
        and value.__module__ == kind.__module__ and is_layer(value)]  # fmt: skip


MOST_WITHIN = 2
"""Classes that are made for one another."""


def in_lists(values: list[Any], count: int) -> list[Any]:
    """Return the likeliest values as tuples: those that are some, and each of the others so many times."""
    whole = [value for value in values if isinstance(value, tuple)]
    return [*whole, *((value,) * count for value in values[:2] if not isinstance(value, tuple))]


def instead_of_default(given: inspect.Parameter, sizes: Sizes, known_of: About) -> list[Any]:
    """Return what stands for a default that is a size, and for None that is called; all others stay."""
    word, grids = plain(given.name), of_pieces(given) or of_image(given, known_of) or of_axes(given, known_of)
    use = known_of.uses.get(given.name, Use())
    is_used, is_part = use.made_from or use.called, word.endswith(("module", "layer", "net", "encoder", "fn"))
    kinds = called_so(word, known_of) if given.default is None and sizes.value(given.name) is None else []
    if kinds or (given.default is None and (is_used or is_part) and sizes.value(given.name) is None):
        said = [*map(Later, kinds), *by_use(given.name, use, sizes, known_of, [])]
        return [None, *(said or of_layers(given.name, sizes, known_of))]
    whole = type(given.default) is int and given.default > 1
    known = sizes.value(given.name)
    if word == "winit" and known_of.library == "haiku":
        return [sys.modules["haiku"].initializers.VarianceScaling(1.0)]
    if grids or ("drop" in word and type(given.default) is float):
        return grids or [sizes.dropout]
    is_flag = isinstance(given.default, bool)
    refused = use.asserted and (is_flag or (type(given.default) is int and known is None))
    refused |= is_flag and "selfat" in word  # keys may be wanted else that a call before has left
    is_scale = given.default is False and sizes.scaled and is_switch_of_scale(word)
    if word in (*DROPOUT, *BIAS) or is_flag or (word == "numgroups" and whole) or refused:  # groups of a norm
        others = [not given.default] if is_flag else [GRID, 2]
        return [True, False] if is_scale else list(dict.fromkeys([given.default, *others])) if refused else []
    exact = word in HEADS or word in SHARED or word in SIZE
    if known is not None and (exact or about_heads(word) or whole):
        return [known, FEW] if counts_tokens(word) else [known]
    own = [None] if given.default is None else []  # some cannot do without a size
    is_size = ends_in_size(word) and (bool(own) or (whole and given.default % 2 == 0))
    if whole and counts_tokens(word):  # a table has room for more; a view takes so many alone
        own, known, is_size = [given.default], FEW, True
    return [*own, sizes.width if known is None else known] if is_size else []


def of_axes(given: inspect.Parameter, known_of: About) -> list[Any]:
    """Return what stands for None where a word says how an image lies, which Keras has its own word for; else nothing.

    Some layers of a model are always told it, and cannot do without.
    """
    if known_of.library != "keras" or given.default is not None:
        return []
    told: dict[str, list[Any]] = {"dataformat": ["channels_last"], "channelaxis": [-1, None]}
    return told.get(plain(given.name), [])


def of_pieces(given: inspect.Parameter) -> list[Any]:
    """Return what stands for a default number of tokens that see each other, or are made one; else nothing."""
    word = plain(given.name)
    if type(given.default) is not int or given.default < len("xy"):
        return []
    if has("srratio", "stride", "reduction", "downsample")(word, ""):
        return [given.default, 1]  # fewer keys than tokens, or as many
    return [1, 2, given.default] if "patchsize" in word else [GRID, given.default] if has(*PIECES)(word, "") else []


def of_image(given: inspect.Parameter, known_of: About) -> list[Any]:
    """Return what stands for the default size of an image, or of a window of one; nothing of other defaults."""
    word, default = plain(given.name), given.default
    if (is_side_of_image(word, known_of.kind) or "window" in word) and isinstance(default, tuple):
        return [(GRID,) * len(default)]
    if default is None and ("window" in word or is_side_of_image(word, known_of.kind)):
        return [None, GRID, (GRID, GRID)]
    if type(default) is not int or default < GRID:
        return []
    is_window = "window" in word and default <= LARGEST_WINDOW
    return [GRID] if is_side_of_image(word, known_of.kind) else [GRID, default] if is_window else []


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


GRID = 4
"""Rows and columns of an image in code that takes one size alone: its points are fewer than the numbers of each."""
LARGEST_WINDOW = 16
"""Of an image: a larger one is of tokens in a row."""
PIECES = ("chunk", "segmentlen", "segmentsize", "blocklen", "localsize", "landmark")
"""Parts of words that say how many tokens in a row see each other, or how many stand for all: few, so that it shows."""


def is_side_of_image(word: str, kind: Any) -> bool:
    """Say whether a word counts rows or columns of an image: by itself, or as a class takes height and width."""
    init = getattr(kind, "__init__", None)
    beside = {plain(name) for name in inspect.signature(init).parameters} if inspect.isfunction(init) else set()
    pairs = (("height", "width"), ("width", "height"), ("h", "w"), ("w", "h"))
    others = {word.removesuffix(one) + other for one, other in pairs if word.endswith(one)}
    return word in IMAGES or bool(others & beside)


FLAGS = ("causal", "mask", "bias", "vis", "log", "verbose")
FIRST: tuple[Rule, ...] = (
    (lambda word, note: "drop" in word and "module" in note, lambda sizes: [dropout_module(sizes), sizes.dropout]),
    (has("drop"), lambda sizes: [sizes.dropout, dropout_module(sizes)]),
    (has("dtype"), lambda sizes: dtypes()),
    (noted("dtype"), lambda sizes: dtypes()),
    (has("device"), lambda sizes: ["cpu"]),
    (noted("bool"), lambda sizes: [False, True]),
    (
        named("rng", "generator", "randomstate", "randomgenerator"),
        lambda sizes: [Later(np.random.default_rng, 0), Later(np.random.RandomState, 0), None],
    ),
)
"""What is surer than any size of that name."""
THEN: tuple[Rule, ...] = (
    (named("layertypes"), lambda sizes: [["full_attention"] * 2]),  # of each layer of a model, of which one is made
    (lambda word, note: word.endswith(("list", "flags")), lambda sizes: [[True] * 2, [1] * 2, [sizes.width] * 2]),
    (has("layer", "idx", "index"), lambda sizes: [0, 1]),
    (named("i", "depth"), lambda sizes: [0, 1, sizes.width]),
    (named("n", "nb", "num", "count", "parts"), lambda sizes: [sizes.heads, sizes.width, sizes.size]),
    (lambda word, note: word.endswith(("theta", "base")), lambda sizes: [10000.0, 1.0]),
    (has("groupsize", "patchsize"), lambda sizes: [1, 2]),
    (has(*PIECES), lambda sizes: [GRID, 2]),
    (has("kernel", "ksize"), lambda sizes: [1, 3]),
    (has("stride", "dilation", "ratio", "reduction", "expansion"), lambda sizes: [1, 2]),
    (has("padding"), lambda sizes: [0, 1]),
    (has("temperature"), lambda sizes: [math.sqrt(sizes.size)]),
    (named("initscale"), lambda sizes: [1.0]),
    (has("preattnscalar"), lambda sizes: [sizes.size]),  # in the layers of Gemma, whose root divides
    (
        lambda word, note: word in ("scale", "scaling", "gain") or word.endswith("scalar"),
        lambda sizes: [1 / math.sqrt(sizes.size)],
    ),
    (lambda word, note: "eps" in word.replace("steps", ""), lambda sizes: [1e-5]),
    (noted("none", "optional"), lambda sizes: [None, sizes.width, 1.0]),
    (noted("float"), lambda sizes: [0.0, 1.0]),
    (
        lambda word, note: word.startswith(("is", "use", "has", "with", "do")) and note != "int",
        lambda sizes: [False, True, None],
    ),
    (named(*FLAGS), lambda sizes: [False, True, None]),
    (has("window"), lambda sizes: [(2, 4), 64, 7, GRID]),
    (has("len", "positions", "tokens", "timesteps", "patches"), lambda sizes: [ROOM, FEW]),
    (named("name"), lambda sizes: ["attention", None]),
    (noted("str"), lambda sizes: ["", "default", None]),
    (named("type", "mode"), lambda sizes: ["", "default", None]),
    (noted("int"), lambda sizes: [sizes.width, sizes.heads, sizes.size, 1, None]),
    (lambda word, note: ends_in_size(word), lambda sizes: [sizes.width, sizes.heads, sizes.size, 1, None]),
    (has(""), lambda sizes: [sizes.width, None, False, sizes.heads, 0.0, sizes.size, 1]),
)
"""What a parameter is given of which no size is known, by its name and its annotation."""
OF_ANY = -3
"""The last of them say nothing of what a number is."""


def counts_tokens(word: str) -> bool:
    """Say whether a name is that of a number of tokens."""
    return word in LENGTH or (any(part in word for part in OF_TOKENS) and "head" not in word)


OF_TOKENS = ("len", "positions", "tokens", "steps", "frames", "npoints", "numpoints", "patches", "nodes", "agents")


def ends_in_size(word: str) -> bool:
    """Say whether a name ends as those of sizes do."""
    return any(word.endswith(end) for end in ENDS)


def note_of(given: inspect.Parameter) -> str:
    """Return what a parameter's annotation says, in small letters."""
    note = given.annotation
    if note is given.empty:
        return ""
    is_written = isinstance(note, str) or bool(typing.get_args(note))  # `list[int]` is called list
    return (str(note) if is_written else getattr(note, "__name__", str(note))).lower()


def dropout_module(sizes: Sizes) -> Any:
    """Return what drops as much as is said, which is mostly nothing."""
    torch = sys.modules.get("torch")
    return torch.nn.Dropout(sizes.dropout) if torch is not None else sizes.dropout


def dtypes() -> list[Any]:
    """Return the types that a constructor may want, the likeliest first."""
    torch = sys.modules.get("torch")
    return [torch.float64, None, "float32"] if torch is not None else [None, "float32"]
