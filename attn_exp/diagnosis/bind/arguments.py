"""Infer the roles of a layer's arguments from their names, and provide neutral values for required ones.

`read_arguments` turns a signature into `Arguments`: in `forward(self, hidden, attention_mask=None, foo=1)`, `hidden` is
the array `x`, `attention_mask` is the keyword `mask`, and `foo` is unknown. `Neutral` computes neutral values. These
change nothing: a mask hides nothing, and a rotary table has angles of 0.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.names import BY_NAME, is_starred, plain, read_names, role_of, side_of_name
from attn_exp.diagnosis.asking.request import Request
from attn_exp.diagnosis.bind.sizes import NAMES

ROLE_NAMES = read_names("""
memory: context memory encoderhiddenstates kv y xa keyvaluestates inputskv xkv encoderoutput encoderoutputs \
    encoutput encout encoutputs crossinput kvinput inputkv crossattentionstates source memories keyvalue other \
    crossx encoderstates mdata c cond others
memory_mask: contextmask encoderattentionmask memorymask encodermask encmask crossattnmask
rotary: positionembeddings rotaryposemb rotaryemb rope posemb positionembedding rotary cossin ropecossin sincos \
    rotposemb rotaryfreqs rotaryfrequencies
complex: freqscis freqscomplex freqs freqcis precomputedfreqs ropefreqs freqscisq pe
cos: cos freqscos ropecos cosine coscached cosemb cosembed costable poscos
sin: sin freqssin ropesin sine sincached sinemb sinembed sintable possin
position_ids: positionids cacheposition inputpos positions pos position tokenpositions
cache: pastkeyvalue pastkeyvalues layerpast past cache kvcache pastkv layercache kvc prevkv incrementalstate state
use_cache: usecache usekvcache returncache
start: startpos offset startposition cachelen curpos startidx pastlength pastlen cachelength positionoffset \
    posoffset
head_mask: headmask layerheadmask
return_weights: needweights outputattentions returnattention returnweights returnattn returnattentionscores \
    returnattnweights averageattnweights outputattention returnattentions sowweights needheadweights
training: training train istraining isdropout istrain enabledropout trainmode
deterministic: deterministic inference evaluate
decode: decode
random: rng dropoutrng prngkey rngs dropoutkey
""") | {"max_tokens": NAMES["max_tokens"]}
"""Roles of arguments in addition to those in `asking.names`, with common names for each."""
ROLE_OF = {name: role for role, names in ROLE_NAMES.items() for name in names}
ARRAYS = ("q", "k", "v", "x", "memory")
"""Roles of the input arrays."""
MASKS = ("mask", "padding", "query_padding", "memory_mask", "lengths")
"""Roles of the arguments that hide tokens."""
MASK_ARRAYS = (*MASKS, "added")
"""Roles for which `Neutral.mask` makes an array; `added` is a bias that is added to the scores."""
ROTARY = ("rotary", "complex", "cos", "sin")
"""Roles of rotary tables: cosines and sines in one argument, complex numbers, or one argument for each."""
OFFSET = "position of the first token"
"""A key in the keywords of a call, for the position at which rotary tables start. No argument has this name."""
TO_EVALUATE = {"training": False, "deterministic": True, "decode": False}
"""Values that switch a layer to evaluation mode."""


def role_of_argument(name: str) -> str:
    """Return the role of an argument from its name: one of ARRAYS, ROLE_NAMES or `names.ROLES`, or an empty string."""
    word = plain(name)
    if BY_NAME.get(word) in ARRAYS or word in ROLE_OF:
        return ROLE_OF.get(word) or BY_NAME[word]
    role, side = role_of(name), side_of_name(name)
    return role or (side if side in ARRAYS else "memory" if side == "kv" else "")


@dataclass(frozen=True)
class Arguments:
    """The arguments of a call.

    Attributes:
        parameters: all parameters by name, except `*args` and `**kwargs`.
        arrays: the names of the arrays that every call passes, by role.
        keywords: the names of the other arguments whose roles are known, by role.
        required: the roles of keywords without a default.
        unknown: the arguments of unknown meaning that a call can do without: optional ones, and those in `fixed`.
        missing: the other arguments of unknown meaning, for which no value is known.
        fixed: required arguments of unknown meaning that get None or False, because their annotation allows it.
    """

    parameters: Mapping[str, inspect.Parameter]
    arrays: Mapping[str, str]
    keywords: Mapping[str, str]
    required: tuple[str, ...]
    unknown: tuple[str, ...]
    missing: tuple[str, ...]
    fixed: Mapping[str, Any] = field(default_factory=dict)

    @property
    def defaults(self) -> dict[str, Any]:
        """The default values of the keywords that are not required, by role."""
        return {role: self.parameters[name].default for role, name in self.keywords.items()
                if role not in self.required}  # fmt: skip


def read_arguments(parameters: Sequence[inspect.Parameter]) -> Arguments:
    """Assign roles to a call's arguments.

    An argument is unknown if it has no role, or if another argument already has its role. An optional memory is a
    keyword. Optional keys and values next to `x` are keywords too. If no argument is q or x, a required one becomes x.
    """
    named = {parameter.name: parameter for parameter in parameters if not is_starred(parameter)}
    required = [name for name, parameter in named.items() if parameter.default is parameter.empty]
    by_role: dict[str, str] = {}
    unknown = list[str]()
    for name in sorted(named, key=lambda name: name not in required):  # required arguments take roles first
        role = role_of_parameter(named[name])
        is_first = role and by_role.setdefault(role, name) == name
        unknown += [] if is_first or role in ("training", "deterministic", "random", "return_weights") else [name]
    if not {"q", "x"} & by_role.keys() and required:
        x = next((name for name in required if name in unknown), required[0])
        by_role = {**{role: name for role, name in by_role.items() if name != x}, "x": x}
    if not {"mask", "padding"} & by_role.keys():  # then a bias of the scores takes the masks, as -inf
        by_role = {"mask" if role == "added" else role: name for role, name in by_role.items()}
    unknown = [name for name in unknown if name != by_role.get("x")]
    arrays = choose_arrays(by_role, required)
    keywords = {role: name for role, name in by_role.items() if name not in arrays.values()}
    annotations = {name: str(named[name].annotation) for name in unknown if name in required}
    fixed = {name: None if re.search("None|Optional", annotation) else False
             for name, annotation in annotations.items() if re.search("None|Optional|bool", annotation)}  # fmt: skip
    return Arguments(
        named, arrays, keywords, required=tuple(role for role, name in keywords.items() if name in required),
        unknown=tuple(name for name in unknown if name not in required or name in fixed),
        missing=tuple(name for name in annotations if name not in fixed), fixed=fixed,
    )  # fmt: skip


def role_of_parameter(parameter: inspect.Parameter) -> str:
    """Return the role of an argument from its name, its annotation and its default, or an empty string."""
    annotation, role = str(parameter.annotation), role_of_argument(parameter.name)
    is_mask = role == "causal" and parameter.default is None and "mask" in parameter.name  # an array, not a switch
    if is_mask or re.search(r"\bstr\b", annotation):
        return ""
    return "random" if role == "k" and "key" in annotation.lower() else role  # a JAX PRNG key


def choose_arrays(by_role: Mapping[str, str], required: Sequence[str]) -> dict[str, str]:
    """Return the names of the arguments that every call passes: x and a memory, or q, k and v."""
    if {"q", "k", "v"} <= by_role.keys() and ("x" not in by_role or by_role["q"] in required):
        return {role: by_role[role] for role in "qkv"}
    if {"q", "x"} <= by_role.keys() and not {"k", "v"} & by_role.keys() and by_role["x"] in required:
        return {"x": by_role["q"], "memory": by_role["x"]}  # forward(query, x): x gives the keys and values
    inputs = [by_role[role] for role in ("x", "q") if role in by_role]
    memories = [by_role[role] for role in ("memory", "k", "v") if by_role.get(role) in required]
    return {role: names[0] for role, names in (("x", inputs), ("memory", memories)) if names}


def find_memory(arguments: Arguments, source: str) -> Arguments:
    """Treat the only required argument of unknown meaning as the memory, if the layer projects it: `self.to_kv(media)`.

    If the layer projects its second argument to queries, as in `self.q_layer(y)`, the second is x and the first is the
    memory.
    """
    names = [*arguments.arrays.values(), *arguments.missing]
    is_pair = len(names) == 2 and {"x"} <= {*arguments.arrays} <= {"x", "memory"}
    projection = re.search(rf"\bself\.(\w+)\(\s*{re.escape(names[-1])}\s*[,)]", source) if is_pair else None
    if projection is None:
        return arguments
    order = names[::-1] if re.match("(?i)(w_?|to_?|proj_?)?q(?!kv)", projection[1]) else names
    return replace(arguments, arrays=dict(zip(("x", "memory"), order, strict=True)), missing=())


# Neutral values for required arguments


@dataclass(frozen=True)
class Neutral:
    """Computes neutral values for arguments: passing them changes nothing.

    Attributes:
        lengths: the batch size b and the numbers of queries t and keys s of the call, and OFFSET.
        sizes: the sizes of the layer, as in `Layer.sizes`.
        source: the source code of the layer, which shows how it uses a mask.
        request: whether a causal mask is requested, and which positional encoding the rotary tables are for.
        level: selects a mask shape, a mask polarity and a rotary layout; at level 0, masks are None.
    """

    lengths: Mapping[str, int]
    sizes: Mapping[str, int]
    source: str
    request: Request
    level: int

    def value(self, role: str, name: str) -> Any:
        """Return the value of the argument `name`, or `...` if its role has no neutral value."""
        if role in ROTARY:
            return self.rotary(role)
        if role in MASK_ARRAYS:
            return self.mask(role, name) if self.level else None
        b, t, heads = self.lengths["b"], self.lengths["t"], self.sizes.get("h", 1)
        values = {
            **TO_EVALUATE, "causal": self.request.is_causal, "heads": heads, "kv_heads": self.sizes.get("g", heads),
            "scale": self.sizes.get("d", 1) ** -0.5, "start": 0, "dropout": 0.0,
            "window": 2 * max(t, self.lengths["s"]) + 1,  # odd, and as wide as all tokens
            "position_ids": np.broadcast_to(np.arange(t), (b, t)).copy(), "max_tokens": t,
            **dict.fromkeys(("return_weights", "use_cache"), False), **dict.fromkeys(("cache", "head_mask", "softcap")),
            "random": sys.modules["jax"].random.PRNGKey(0) if "jax" in sys.modules else None,
        }  # fmt: skip
        return values.get(role, ...)

    def mask(self, role: str, name: str) -> Array:
        """Return a mask that hides nothing.

        The level selects one of four shapes. The fill is inferred from the name and the source code; from level 5 on,
        booleans have the opposite polarity.
        """
        b, t, s = (self.lengths[letter] for letter in "bts")
        shapes = [(b, s), (t, s), (b, t, s), (b, 1, t, s)]
        of_roles = {"padding": (b, s), "query_padding": (b, t), "lengths": (b,)}
        shape = of_roles.get(role, shapes[self.level % len(shapes)])
        fill = s if role == "lengths" else fill_of_mask(name, self.source)
        is_inverted = isinstance(fill, bool) and self.level > len(shapes)
        return np.full(shape, not fill if is_inverted else fill)

    def rotary(self, role: str) -> Any:
        """Return rotary tables in the layout of this level, with angles of 0 if no positions are requested.

        Tables have one angle per dimension or per pair of dimensions. A single argument for both cosines and sines may
        expect two arrays, the angles, or complex numbers (also as pairs of real numbers).
        """
        size = self.sizes.get("r") or self.sizes.get("d", 2)
        tokens = self.lengths.get(OFFSET, 0) + np.arange(self.lengths["t"])
        base = float(getattr(next(iter(self.request.positions), None), "base", 1e4))
        by_pair = tokens[:, None] * base ** (-np.arange(0, size, 2) / size) * bool(self.request.positions)  # [t d/2]
        by_dimension = np.concatenate([by_pair, by_pair], -1)  # [t d]
        rotations = np.exp(1j * by_pair)
        real_pairs = np.stack([rotations.real, rotations.imag], -1)  # [t d/2 2]
        matrices = np.stack([real_pairs * [1, -1], real_pairs[..., ::-1]], -2)  # [t d/2 2 2]

        angles = [by_dimension, by_pair, *(np.stack([table] * self.lengths["b"]) for table in (by_dimension, by_pair))]
        cosines = [np.cos(table) for table in angles]
        sines = [np.sin(table) for table in angles]
        of_dimensions, of_pairs, batched_dimensions, batched_pairs = zip(cosines, sines, strict=True)
        before_heads = tuple(table[:1, :, None] for table in batched_pairs)  # [1 t 1 d/2]
        layouts = {
            "cos": [*cosines, before_heads[0]], "sin": [*sines, before_heads[1]],
            "complex": [rotations, real_pairs, batched_pairs, matrices],
            "rotary": [batched_dimensions, batched_pairs, by_dimension, rotations, before_heads, of_dimensions,
                       real_pairs, of_pairs],
        }  # fmt: skip
        return layouts[role][self.level % len(layouts[role])]


def fill_of_mask(name: str, source: str) -> float | bool:
    """Infer the mask value that hides nothing from how the code uses this mask or, failing that, any other mask."""
    for mask in (re.escape(name), r"(?!\w*(?:causal|tri))\w*mask"):
        use = rf"\b{mask}\b(\.\w+\([^()]*\))*"  # mask, or mask.unsqueeze(1)
        fills = (
            (rf"\b{mask}\s*=.*\b{mask}\s*==\s*0", True),  # mask = mask == 0
            (rf"masked_fill_?\(\s*{use}\s*(==\s*(1|True)\s*)?,", False),  # masked_fill(mask, ...)
            (rf"masked_fill_?\(\s*{use}\s*==\s*(0|False)\s*,", True),  # masked_fill(mask == 0, ...)
            (rf"1(\.0*)?\s*-\s*{use}", 1.0),  # 1.0 - mask
            (rf"[+]=?\s*{use}\s*($|[#)\n])", 0.0),  # scores + mask
        )
        found = next((fill for pattern, fill in fills if re.search(pattern, source)), None)
        if found is not None:
            return found
    return True
