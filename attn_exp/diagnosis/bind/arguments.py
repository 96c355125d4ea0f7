"""Infer the roles of a layer's arguments from their names, and provide neutral values for required ones."""

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
rotary: positionembeddings rotaryposemb rotaryemb rope posemb positionembedding rotary cossin ropecossin sincos
complex: freqscis freqscomplex freqs freqcis precomputedfreqs ropefreqs freqscisq pe
cos: cos freqscos ropecos cosine coscached
sin: sin freqssin ropesin sine sincached
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
""") | {"room": NAMES["room"]}
"""Roles of arguments beyond those in `asking.names`, with common names for each."""
ROLE_OF = {name: role for role, names in ROLE_NAMES.items() for name in names}
ARRAYS = ("q", "k", "v", "x", "memory")
MASKS = ("mask", "padding", "query_padding", "memory_mask", "lengths")
MADE = (*MASKS, "added")
ROTARY = ("rotary", "complex", "cos", "sin")
REPEATED = ("training", "deterministic", "random", "return_weights")
"""Roles that several arguments may have."""
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
    """The names of a call's arguments by role: `arrays` are passed in every call, `keywords` are the others.

    `required` lists the roles of keywords without a default. `unknown` lists the optional arguments of unknown
    meaning, `missing` the required ones, and `fixed` those required ones whose annotation allows False or None.
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
        optional = ((role, name) for role, name in self.keywords.items() if role not in self.required)
        return {role: self.parameters[name].default for role, name in optional}


def read_arguments(parameters: Sequence[inspect.Parameter]) -> Arguments:
    """Assign roles to a call's arguments; an argument is unknown if it has no role, or if its role is taken.

    An optional memory counts as a keyword, and so do keys and values next to `x`. If no argument is q or x, a required
    one becomes x.
    """
    named = {one.name: one for one in parameters if not is_starred(one)}
    needed = [name for name, one in named.items() if one.default is one.empty]
    by_role: dict[str, str] = {}
    unknown = list[str]()
    for name in sorted(named, key=lambda one: one not in needed):
        is_key = "key" in str(named[name].annotation).lower()  # a JAX PRNG key
        role = "random" if is_key and role_of_argument(name) == "k" else role_of_argument(name)
        note = str(named[name].annotation)
        if (role == "causal" and named[name].default is None and "mask" in name) or re.search(r"\bstr\b", note):
            role = ""  # an array, not a switch; or a word
        first = by_role.setdefault(role, name) if role else ""
        unknown += [] if first == name or role in REPEATED else [name]
    if not {"q", "x"} & by_role.keys() and needed:
        first = next((name for name in needed if name in unknown), needed[0])
        by_role = {**{role: name for role, name in by_role.items() if name != first}, "x": first}
    unknown = [name for name in unknown if name != by_role.get("x")]
    if not {"mask", "padding"} & by_role.keys():  # -inf in a bias hides keys as a mask does
        by_role = {"mask" if role == "added" else role: name for role, name in by_role.items()}
    arrays = choose_arrays(by_role, needed)
    keywords = {role: name for role, name in by_role.items() if name not in arrays.values()}
    notes = {name: str(named[name].annotation) for name in unknown if name in needed}
    fixed = {name: None if re.search("None|Optional", note) else False for name, note in notes.items()
             if re.search("None|Optional|bool", note)}  # fmt: skip
    return Arguments(
        named, arrays, keywords, required=tuple(role for role, name in keywords.items() if name in needed),
        unknown=tuple(one for one in unknown if one not in needed or one in fixed),
        missing=tuple(name for name in notes if name not in fixed), fixed=fixed,
    )  # fmt: skip


def find_memory(arguments: Arguments, source: str) -> Arguments:
    """Treat the only required argument of unknown meaning as memory if the layer projects it: `self.to_kv(media)`."""
    names = arguments.missing
    is_projected = len(names) == 1 and re.search(rf"\bself\.\w+\(\s*{re.escape(names[0])}\s*[,)]", source)
    if not is_projected or set(arguments.arrays) != {"x"}:
        return arguments
    return replace(arguments, arrays={**arguments.arrays, "memory": names[0]}, missing=())


def choose_arrays(by_role: dict[str, str], needed: Sequence[str]) -> dict[str, str]:
    if {"q", "x"} <= by_role.keys() and not {"k", "v"} & by_role.keys() and by_role["x"] in needed:
        return {"x": by_role["q"], "memory": by_role["x"]}
    if {"q", "k", "v"} <= by_role.keys() and ("x" not in by_role or by_role["q"] in needed):
        return {role: by_role[role] for role in "qkv"}
    first = [by_role[role] for role in "xq" if role in by_role]
    memory = [by_role[role] for role in ("memory", "k", "v") if by_role.get(role) in needed]
    return {role: names[0] for role, names in (("x", first), ("memory", memory)) if names}


# Neutral values for required arguments


@dataclass(frozen=True)
class Neutral:
    """Computes neutral values for arguments; `level` selects the mask shape or rotary layout to try."""

    lengths: Mapping[str, int]
    sizes: Mapping[str, int]
    source: str
    request: Request
    level: int

    def value(self, role: str, name: str) -> Any:
        lengths, heads = self.lengths, self.sizes.get("h", 1)
        values = {
            **TO_EVALUATE, "causal": self.request.is_causal, "heads": heads, "kv_heads": self.sizes.get("g", heads),
            "scale": self.sizes.get("d", 1) ** -0.5, "start": 0, "dropout": 0.0,
            "window": 2 * max(lengths["t"], lengths["s"]) + 1,  # odd, and as wide as all tokens
            "position_ids": np.broadcast_to(np.arange(lengths["t"]), (lengths["b"], lengths["t"])).copy(),
            **dict.fromkeys(("return_weights", "use_cache"), False), "room": lengths["t"],
            **dict.fromkeys(("cache", "head_mask", "softcap")), "random": random_key(),
            **dict.fromkeys(MADE, self.mask(role, name) if self.level and role in MADE else None),
        }  # fmt: skip
        return self.rotary(role) if role in ROTARY else values.get(role, ...)

    def mask(self, role: str, name: str) -> Array:
        """Return a mask that hides nothing, in one of four shapes.

        Its fill is inferred from the name and the source code; from level 5 on, booleans have the opposite polarity.
        """
        b, t, s = (self.lengths[letter] for letter in "bts")
        shapes = {"padding": (b, s), "query_padding": (b, t), "lengths": (b,)}
        shape = shapes.get(role, [(b, s), (t, s), (b, t, s), (b, 1, t, s)][self.level % 4])
        fill = fill_of_mask(name, self.source)
        turned = isinstance(fill, bool) and self.level > len("btsh")
        return np.full(shape, s if role == "lengths" else fill ^ turned if isinstance(fill, bool) else fill)

    def rotary(self, role: str) -> Any:
        """Return rotary tables in one common layout per level, with the requested angles, or 0 if none are requested.

        Cosines and sines have one angle per dimension or per pair. A single argument for both takes two arrays, the
        angles, or complex numbers (also as pairs of real numbers).
        """
        size, rows = self.sizes.get("r") or self.sizes.get("d", 2), self.lengths["t"]
        base = float(getattr(next(iter(self.request.positions), None), "base", 1e4))
        pairs = np.arange(rows)[:, None] * base ** (-np.arange(0, size, 2) / size) * bool(self.request.positions)
        wide, turned = np.concatenate([pairs, pairs], -1), np.exp(1j * pairs)

        def both(angles: Array) -> tuple[Array, ...]:
            shape = (self.lengths["b"], *angles.shape)
            return tuple(np.broadcast_to(one, shape).copy() for one in (np.cos(angles), np.sin(angles)))

        behind = tuple(one[:1, :, None] for one in both(pairs))  # heads after tokens
        halves = np.stack([turned.real, turned.imag], -1)
        matrices = np.stack([halves * [1, -1], halves[..., ::-1]], -2)  # [t d/2 2 2]
        cosines, sines = (
            [turn(wide), turn(pairs), both(wide)[at], both(pairs)[at]] for at, turn in enumerate((np.cos, np.sin))
        )
        values = {
            "cos": cosines, "sin": sines, "complex": [turned, halves, both(pairs), matrices],
            "rotary": [
                both(wide), both(pairs), wide, turned, behind, (cosines[0], sines[0]), halves, (cosines[1], sines[1])
            ],
        }  # fmt: skip
        return values[role][self.level % len(values[role])]


def random_key() -> Any:
    return sys.modules["jax"].random.PRNGKey(0) if "jax" in sys.modules else None


def fill_of_mask(name: str, source: str) -> float | bool:
    """Return the mask value that hides nothing, inferred from how the code uses this mask or, failing that, another."""
    for word in (re.escape(name), r"(?!\w*(?:causal|tri))\w*mask"):
        use = rf"\b{word}\b(\.\w+\([^()]*\))*"
        fills = (
            (rf"\b{word}\s*=.*\b{word}\s*==\s*0", True),
            (rf"masked_fill_?\(\s*{use}\s*(==\s*(1|True)\s*)?,", False),
            (rf"masked_fill_?\(\s*{use}\s*==\s*(0|False)\s*,", True),
            (rf"1(\.0*)?\s*-\s*{use}", 1.0),
            (rf"[+]=?\s*{use}\s*($|[#)\n])", 0.0),
        )
        found = next((fill for pattern, fill in fills if re.search(pattern, source)), None)
        if found is not None:
            return found
    return True
