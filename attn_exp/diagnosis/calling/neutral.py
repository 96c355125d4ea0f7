"""Neutral values for arguments that no case sets: sizes, modules, dropout, random keys, caches, tables.

A name or annotation is a hint that orders the attempts; if the function raises an error, the hint was wrong.
"""

from __future__ import annotations

import inspect
import math
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.calling.turning_tables import (
    Filled,
    Make,
    Sizes,
    Turning,
    counted,
    ends_of,
    in_matrices,
    lengths,
    rotations,
)
from attn_exp.diagnosis.code.libraries import beside, module_of
from attn_exp.forms.pipeline import At


@dataclass(frozen=True)
class Context:
    """One call: its sizes, the library, its arrays by role, and the requested rotary positions."""

    at: At
    library: str
    given: Mapping[str, Any]
    turning: Turning | None = None

    @property
    def first(self) -> Any:
        """One of the arrays, which determines the dtype and device of others."""
        return next(iter(self.given.values()))

    def array(self, array: Array) -> Any:
        """Convert a NumPy array to the library of the call, numbers to its dtype."""
        return beside(array, self.first)

    @property
    def sizes(self) -> Sizes:
        """The same call in the form that layers use."""
        return Sizes(self.at.batch, self.at.rows, self.at.keys, self.first, self.turning)


@dataclass(frozen=True)
class Source:
    """Where the value of an argument comes from: as Python text, and a function that makes it for a call."""

    text: str
    make: Callable[[Context], Any]


def fixed(value: Any) -> Source:
    """Return the source of a constant."""
    return Source(repr(value), lambda context: value)


def as_layers(text: str, make: Make) -> Source:
    """Return the source of a value that layers use too."""
    return Source(text, lambda context: make(context.sizes))


NONE, FALSE, TRUE, ZERO, ZERO_FLOAT, ONE, ONE_FLOAT, EMPTY = map(fixed, (None, False, True, 0, 0.0, 1, 1.0, ""))
EMPTY_MAPPING = Source("{}", lambda context: {})  # a new dict for each call, which may write to it
SIZE = Source("q.shape[-1]", lambda context: context.at.size)
ROOT = Source("q.shape[-1] ** 0.5", lambda context: math.sqrt(context.at.size))
SCALE = Source("q.shape[-1] ** -0.5", lambda context: context.at.size**-0.5)
HEADS = Source("heads", lambda context: context.at.heads)
GROUPS = Source("kv_heads", lambda context: context.at.groups)
SHARE = Source("heads // kv_heads", lambda context: context.at.heads // context.at.groups)
WIDTH = Source("heads * q.shape[-1]", lambda context: context.at.heads * context.at.size)
BATCH = Source("len(q)", lambda context: context.at.batch)
ROWS = Source("q.shape[-2]", lambda context: context.at.rows)
KEYS = Source("k.shape[-2]", lambda context: context.at.keys)
ALL_AROUND = Source("2 * max(t, s)", lambda context: 2 * max(context.at.rows, context.at.keys))
ALL_AND_ITS_OWN = Source("2 * max(t, s) + 1", lambda context: 2 * max(context.at.rows, context.at.keys) + 1)
SAME = Source("lambda x, *_, **__: x", lambda context: lambda x, *_, **__: x)
POSITIONS, POSITIONS_OF_ALL = (
    as_layers("arange(t)", counted("t")), as_layers("arange(t) for each entry", counted("b t"))
)  # fmt: skip
DOCUMENTS, NO_BIAS = as_layers("zeros [b t]", Filled("b t", 0)), as_layers("zeros [t s]", Filled("t s", 0.0))
LENGTHS = as_layers("[s] * b", lengths)


def ends_of_both(context: Context) -> Any:
    """Return `cu_seqlens` that hold for queries and for keys.

    Raises:
        ValueError: there are more of one.
    """
    if context.at.rows != context.at.keys:
        raise ValueError("it is told one length for queries and keys")
    return ENDS.make(context)


ENDS, ENDS_OF_KEYS = as_layers("[0, t]", ends_of("rows")), as_layers("[0, s]", ends_of("keys"))
ENDS_OF_BOTH = Source("[0, t]", ends_of_both)
NO_SINKS = Source("sinks of -1e30", lambda context: context.array(np.full(context.at.heads, -1e30)))
LOWEST, LOW = Source('float("-inf")', lambda context: -math.inf), Source("-1e9", lambda context: -1e9)
DTYPE = Source("q.dtype", lambda context: context.first.dtype)
DEVICE = Source("q.device", lambda context: getattr(context.first, "device", None))
FEW = fixed(4)


def room_for_answer(context: Context) -> Any:
    """Return a buffer that a function may write its output to."""
    q = context.first
    v = context.given.get("v", q)
    return context.array(np.zeros((*q.shape[:-1], v.shape[-1])))


ROOM_FOR_ANSWER = Source("zeros like q", room_for_answer)


def table(text: str, number: float, pairs: bool, by_head: bool = False) -> Source:
    """Return the source of a table of 1 or 0, or of cosines or sines of the requested angles, one row per token.

    `by_head`: it has a head axis after the token axis.
    """
    shape, parts = "t 1 d" if by_head else "t d", 2 if pairs else 1
    return Source(text, lambda context: Filled(shape, number, context.at.size // parts)(context.sizes))


EYES, NULLS = (
    tuple(table(text, number, pairs, by_head) for by_head in (False, True) for pairs in (False, True))
    for text, number in (("cosines of the angles asked for, or 1", 1.0), ("sines of the angles asked for, or 0", 0.0))
)
UNIT = Source("turns by the angles asked for, or 1", lambda context: rotations("t e", context.at.size)(context.sizes))
TURNS = Source(
    "eye(2), or turns by the angles asked for, for each two numbers [1 1 t d/2 2 2]",
    lambda context: in_matrices(context.at.size)(context.sizes),
)


def functional(context: Context) -> Any:
    """Return the module of a library that has softmax."""
    if context.library == "torch":
        import torch.nn.functional  # noqa: PLC0415 - as above

        return torch.nn.functional
    if context.library == "jax":
        import jax.nn  # noqa: PLC0415

        return jax.nn
    return SimpleNamespace(softmax=softmax_of(context))


def softmax_of(context: Context) -> Any:
    """Return a softmax for the arrays of a call, over the last axis by default."""
    if context.library == "numpy":
        return numpy_softmax
    library = functional(context)

    def softmax(array: Any, axis: int = -1, dim: int | None = None, **_: Any) -> Any:
        return library.softmax(array, axis if dim is None else dim)

    return softmax


def numpy_softmax(array: Array, axis: int = -1, **_: Any) -> Array:
    powers = np.exp(array - array.max(axis=axis, keepdims=True))
    shares: Array = powers / powers.sum(axis=axis, keepdims=True)
    return shares


def chance(context: Context) -> Any:
    """Return a source of random numbers, which attention needs only for dropout."""
    if context.library == "jax":
        import jax  # noqa: PLC0415 - as above

        return jax.random.PRNGKey(0)
    if context.library == "torch":
        import torch  # noqa: PLC0415

        return torch.Generator(device=context.first.device).manual_seed(0)
    return np.random.default_rng(0)


def random_key(sizes: Any) -> Any:
    """Return a random key if x is a JAX array, else None."""
    if type(sizes.x).__module__.partition(".")[0] not in ("jax", "jaxlib"):
        return None
    return sys.modules["jax"].random.PRNGKey(0)


RANDOM_KEY = as_layers("a key", random_key)
"""The value of a `key` argument that is not the array of keys."""
WIDTHS = ("dim", "hidden", "size", "dimension", "channels")
"""Names that mean a layer's width among settings in which the head size has a longer name."""


class NoDropout(float):
    """The number 0 that can be called and returns its argument: dropout is a rate or a layer."""

    def __call__(self, array: Any, *_: Any, **__: Any) -> Any:
        return array


class Settings:
    """An object that returns the sizes of a call by their usual names, and False for what can be turned on."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self.config: Any = self
        self.training = self.is_causal = self.causal = False

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        if "drop" in name.lower():
            return NoDropout()
        sources = [source for source in hinted(name, "") if source is not SAME]
        known = WIDTH if name in WIDTHS and WIDTH in sources else next(iter(sources), None)
        if known is None:
            raise AttributeError(f"a neutral object has no {name!r}")
        return known.make(self._context)

    def __getitem__(self, name: str) -> Any:
        return getattr(self, name)

    def get(self, name: str, default: Any = None) -> Any:
        """Return the value for a name, or the default."""
        return getattr(self, name, default)


HOME, FUNCTIONS = Source("numpy", lambda context: module_of(context.library)), Source("functional", functional)
SOFTMAX, CHANCE = Source("softmax", softmax_of), Source("a key", chance)
OBJECT = Source("SimpleNamespace(training=False, ...)", Settings)

HINTS: tuple[tuple[str, tuple[Source, ...]], ...] = (
    (r"(xp|np|jnp|lib|library|backend|ops|array_?module|nx|numpy|torch|ns|namespace|K|be|mod)",
     (HOME, FUNCTIONS, OBJECT)),
    (r"(F|nn|functional|fn)", (FUNCTIONS, HOME, SOFTMAX)),
    (r"(module|self|layer|cls|attn|attention|parent|model|cfg|config|conf|args|hparams|opts?|options|ctx|params?)",
     (OBJECT, NONE)),
    (r".*(softmax|activation|normali[sz]er?)(_?(fn|func|function|op))?", (SOFTMAX, NONE)),
    (r"(\w*_)?(rngs?|key_?rng|prng_?key|prng|random_?key|generator|gen|random_?state|rng_?key|seed)",
     (NONE, CHANCE, ZERO)),
    (r"(is_?|in_?)?(train|training|istraining)(_?mode)?", (FALSE,)),
    (r"(deterministic|inference|eval|eval_?mode|evaluate|test)", (TRUE, FALSE)),
    (r".*(dropout|drop)(_?(layer|fn|module|func|op))?", (NONE, ZERO_FLOAT, SAME)),
    (r".*(dropout|drop|pdrop).*", (ZERO_FLOAT, NONE, SAME)),
    (r".*(cache|past|history|mems?|kv_?state|incremental.*)", (NONE, EMPTY_MAPPING)),
    (r"(b|bs|bsz|bsize|(max_?|n)?batch(_?size)?|nbatches|B)", (BATCH,)),
    (r"(n_?)?(kv_?heads?|num_?(kv|key_?value)_?heads|n_?kv|n_?groups|num_?groups|groups|G)", (GROUPS, SHARE)),
    (r"(n_?rep|num_?key_?value_?groups|num_?queries_?per_?kv|repeats?|q_?per_?kv)", (SHARE,)),
    (r"(n|num|nb)?_?(attention_?|query_?|q_?)?heads?|nh|h|H|n_?head|NH|headcount", (HEADS,)),
    (r".*(block|chunk|tile|bucket|segment_?size).*|br|bc|b_?q|b_?k|b_?r|b_?c", (FEW, ONE, ROWS, fixed(16))),
    (r"(q_?len|t|tq|l|n|seq_?len(gth)?|tgt_?len|t_?q|len_?q|query_?len(gth)?|T|L|M|N)", (ROWS, KEYS)),
    (r"(max_?(seq_?)?len|context_?length|n_?ctx|t_?cap|((cache|kv|seq|max)_?)?capacity)", (ROWS, KEYS)),
    (r"(k_?len|kv_?len|s|tk|src_?len|key_?len(gth)?|len_?k|S|t_?k)", (KEYS,)),
    (r"(embed_?dim|d_?model|d_?m|emb(ed)?(_?size)?|n_?embd|hidden_?(size|dim)|model_?dim|width|C|E|inner_?dim|n_?state)",
     (WIDTH, SIZE)),
    (r"(d|dk|d_?k|d_?q|dim_?k|key_?dim|d_?head|head_?dim|dim_?head|head_?size|size_?per_?head|dim|d_?v|D|hd|hs|dh)",
     (SIZE, WIDTH)),
    (r"(q|k|v|qk|query|queries|keys?|values?|attn?|att|proj|features?|in|input|latent)_?(dims?|size|depth|channels)",
     (SIZE, WIDTH)),
    (r"(depth|dim_?keys?|feature_?dim|n_?dim|attn_?dim|attention_?dim|d_?key|key_?size|hidden|size|dimension|channels|ch)",
     (SIZE, WIDTH)),
    ((r"(sqrt?_?(d|dk|d_?k|dim)(_?k(eys?)?)?|\w+_sqrt|root_\w+|temp(erature)?|root|norm_?factor|divisor|tau|"
     r"denom(inator)?)"), (ROOT, SCALE)),
    (r"(out|output|o|result|answer|attn_?out(put)?)", (ROOM_FOR_ANSWER,)),
    (r".*(scale|scaling|multiplier|alpha|factor|inv_?sqrt.*)", (SCALE, ROOT, NONE, ONE_FLOAT, TRUE)),
    (r"(.*_)?cos(ine)?(_.*)?", EYES),
    (r"(.*_)?sin(e)?(_.*)?", NULLS),
    (r"freqs(_?cis|_?complex)?|freqs_.*|rope_?freqs", (UNIT, NONE)),
    (r"(apply_)?(rope|rotary|rotary_?emb|pos_?emb|pe|position_?embedding)(_?fn)?", (NONE, SAME, TURNS)),
    (r".*(segment|doc(ument)?)_?ids?.*", (DOCUMENTS,)),
    (r"start_?pos(ition)?|(pos|position|cache)_?(start|offset)|offset", (ZERO,)),
    (r".*(pos|position)s?(_?ids?)?|.*_?pos(itions)?|cache_?position|index|indices",
     (POSITIONS, POSITIONS_OF_ALL, ZERO)),
    (r"(cu|cum)_?(seq)?_?len(gth)?s?", (ENDS_OF_BOTH,)),
    (r"(cu|cum)_?(seq)?_?len(gth)?s?_?q(uery)?", (ENDS,)),
    (r"(cu|cum)_?(seq)?_?len(gth)?s?_?k(v|ey)?", (ENDS_OF_KEYS,)),
    (r"max_?seq_?len(gth)?_?q(uery)?", (ROWS,)),
    (r"max_?seq_?len(gth)?_?k(v|ey)?", (KEYS,)),
    (r".*lens?|.*lengths?", (LENGTHS, NONE)),
    (r".*bias.*", (NO_BIAS, NONE, ZERO_FLOAT)),
    (r".*mask.*", (NONE,)),
    (r"(eps|epsilon|tiny)", (ZERO_FLOAT, fixed(1e-30))),
    (r".*(fill|neg_?inf|neg|min_?value|minus_?inf|large_?neg|big_?neg|inf).*", (LOWEST, LOW, fixed(1e9))),
    (r".*dtype.*|.*precision.*", (DTYPE, NONE)),
    (r".*device.*|dev", (DEVICE, NONE)),
    (r".*(causal|bidirectional).*", (FALSE,)),
    (r"(layer|block)_?(idx|id|index|num|number|i)|i|step|layer_?i|time_?step", (ZERO,)),
    (r"(return|need|output|with|get|keep|want|use|enable|is|do|has)_.*|(return|need|want)\w+|verbose|debug",
     (FALSE, TRUE, NONE)),
    (r".*window.*", (NONE, ALL_AROUND, ALL_AND_ITS_OWN, KEYS, fixed((-1, -1)), fixed(-1))),
    (r".*sinks?.*", (NO_SINKS, NONE)),
    (r".*(cap|slopes|alibi).*", (NONE,)),
    (r".*axis|.*dim", (fixed(-1), SIZE)),
)  # fmt: skip
"""Name patterns with the values to try for such an argument, the likeliest first."""
BY_NOTE: tuple[tuple[str, tuple[Source, ...]], ...] = (
    (r"\bbool\b", (FALSE, TRUE)),
    (r"\b(None|Optional)\b", (NONE,)),
    (r"\bint\b", (SIZE, HEADS, WIDTH, ROWS, ONE, ZERO)),
    (r"\bfloat\b", (SCALE, ZERO_FLOAT, ROOT, ONE_FLOAT)),
    (r"\bstr\b", (EMPTY,)),
    (r"\bCallable\b", (SAME, SOFTMAX)),
    (r"\b(Module|ModuleType)\b", (OBJECT, SAME, HOME)),
    (r"\b(dict|Mapping|Dict)\b", (EMPTY_MAPPING,)),
)
"""The same for annotations."""
ANYTHING = (NONE, SIZE, ZERO_FLOAT, FALSE, SAME, HOME, OBJECT, ONE, HEADS, NO_BIAS)
"""Values to try for an argument about which nothing is known."""
PATTERNS = [(re.compile(pattern), sources) for pattern, sources in HINTS]


def hinted(name: str, note: str) -> Iterator[Source]:
    """Yield the sources that a name and an annotation suggest."""
    for pattern, sources in PATTERNS:
        if pattern.fullmatch(name) or pattern.fullmatch(name.lower()):
            yield from sources
            break
    for written, sources in BY_NOTE:
        if re.search(written, note):
            yield from sources


def sources_of(given: inspect.Parameter) -> tuple[Source, ...]:
    """Return the values to try for a parameter, the likeliest first: by its name, then by its annotation."""
    note = "" if given.annotation is given.empty else str(getattr(given.annotation, "__name__", given.annotation))
    known = tuple(dict.fromkeys(hinted(given.name.strip("_"), note)))
    if re.search(r"\b(float|int|bool)\b", note) and not re.search(r"None|Optional", note):
        known = (*(one for one in known if one is not NONE), *(one for one in known if one is NONE))
    if known[:1] == (NONE,) and ALL_AROUND in known and given.default is given.empty:
        known = (*known[1:], NONE)  # a required window covers the whole sequence
    return known or ANYTHING


def is_known(name: str) -> bool:
    """Return whether a name identifies an argument other than q, k, v and x."""
    return any(True for _ in hinted(name.strip("_"), ""))
