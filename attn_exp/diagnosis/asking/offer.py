"""What a function takes, inferred from its parameter names, and how a case is passed to it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.case import Case
from attn_exp.diagnosis.asking.request import Filler, Gap, Request
from attn_exp.diagnosis.asking.unread import set_aside
from attn_exp.errors import UserError
from attn_exp.forms import steps
from attn_exp.forms.pipeline import At, Recipe
from attn_exp.rules.masks.array import Allowed
from attn_exp.rules.masks.causal import Causal
from attn_exp.rules.masks.mask import Mask
from attn_exp.rules.masks.padding import Padding
from attn_exp.rules.masks.window import Window
from attn_exp.rules.scores.added import Added
from attn_exp.rules.scores.alibi import Alibi, slopes
from attn_exp.rules.scores.sink import Sink
from attn_exp.rules.scores.softcap import Softcap

ROLES: dict[str, tuple[str, ...]] = {
    "q": ("q", "query", "queries", "qs"),
    "k": ("k", "key", "keys", "ks"),
    "v": ("v", "value", "values", "vs"),
    "x": ("x", "inputs", "input", "hiddenstates", "embeddings", "embedding", "tokens", "xs", "hidden"),
    "W_q": ("wq", "wquery", "queryweight", "qweight", "weightq", "qproj", "wqs", "queryw"),
    "W_k": ("wk", "wkey", "keyweight", "kweight", "weightk", "kproj", "wks", "keyw"),
    "W_v": ("wv", "wvalue", "valueweight", "vweight", "weightv", "vproj", "wvs", "valuew"),
    "W_o": ("wo", "wout", "woutput", "outweight", "outputweight", "oweight", "outproj", "oproj", "weighto", "wproj"),
    "b_q": ("bq", "bquery", "qbias", "querybias", "biasq"),
    "b_k": ("bk", "bkey", "kbias", "keybias", "biask"),
    "b_v": ("bv", "bvalue", "vbias", "valuebias", "biasv"),
    "b_o": ("bo", "bout", "boutput", "obias", "outbias", "outputbias", "biaso"),
    "mask": ("mask", "attnmask", "attentionmask", "attnmasks", "attentionmasks", "attendmask", "srcmask"),
    "added": ("bias", "attnbias", "attentionbias"),
    "padding": ("keypaddingmask", "paddingmask", "keymask", "padmask", "pad", "padding", "kvmask", "kmask"),
    "query_padding": ("qmask", "querymask", "queriesmask", "querypaddingmask", "qpaddingmask"),
    "causal": ("iscausal", "causal", "usecausalmask", "causalmask"),
    "scale": ("scale", "smscale", "softmaxscale", "scaling", "scalefactor"),
    "window": ("window", "windowsize", "localwindowsize", "slidingwindow"),
    "softcap": ("softcap", "logitcap", "attnlogitssoftcap", "logitsoftcap", "attnlogitsoftcapping", "logitssoftcap",
                "cap"),
    "shared": ("enablegqa", "gqa"),
    "lengths": ("lengths", "seqlens", "seqlengths", "kvlengths", "keylengths", "keyvalueseqlengths", "nonpadkvseqlen",
                "kvlens", "seqlensk", "seqlenskv", "length", "validlens", "validlen", "validlength", "validlengths",
                "lens", "inputlengths", "inputlens", "sequencelengths", "srclengths", "srclens", "memorylengths",
                "memorylens", "enclens", "encoderlengths", "klens", "keylens", "actuallengths", "xlens"),
    "alibi": ("alibislopes", "slopes", "alibi"),
    "sinks": ("sinks", "sink", "sinklogits", "attentionsinks", "sinklogit"),
    "heads": ("numheads", "nheads", "head", "heads", "nhead", "nbheads", "nhheads", "h", "numattentionheads",
              "numberofheads", "numofheads"),
    "kv_heads": ("numkvheads", "nkvheads", "kvheads", "kvhead", "numkeyvalueheads"),
    "dropout": ("dropoutp", "dropout", "pdropout", "dropoutrate"),
}  # fmt: skip
"""Each role with the parameter names used for it in practice, in lower case without underscores."""

BY_NAME = {name: role for role, names in ROLES.items() for name in names}
CORE, LAYER = ("q", "k", "v"), ("x", "W_q", "W_k", "W_v")


@dataclass(frozen=True)
class Offer:
    """What a function takes: q, k and v if `core`, else x and a layer's weight matrices.

    `parameters` maps each role to the function's own name for it; `positional` are the positional-only ones; `defaults`
    holds the function's defaults. `layouts`: the only possible layouts, if known. `said`: the values of other
    arguments, in words. `guessed`: names did not tell which arguments hold the arrays. `only_if_right`: nothing did, so
    a wrong answer does not mean wrong attention. `divides`: scores are divided by the scale argument. `own_keys`: how
    many extra keys a layer has, learned ones that were set to 0. `unscaled`: a layer that often has no scale: one head
    over the points of an image, one query over states that are both keys and values, no biases and a position table, or
    normalized queries and keys (non-local networks, SAGAN, Luong's dot score, T5, Gemma 3n). `turned`: weight matrices,
    W_o too, are passed as `nn.Linear` stores them, `[out in]`.
    """

    core: bool
    parameters: Mapping[str, str]
    positional: tuple[str, ...]
    defaults: Mapping[str, Any]
    layouts: tuple[str, ...] = ()
    said: str = ""
    guessed: bool = False
    only_if_right: bool = False
    divides: bool = False
    own_keys: int = 0
    unscaled: bool = False
    turned: bool = False

    def takes(self, role: str) -> bool:
        """Return whether a parameter has this role."""
        return role in self.parameters

    def without(self, *roles: str) -> Offer:
        """Return the offer without these roles; the function's own defaults apply to them."""
        words = {role: word for role, word in self.parameters.items() if role not in roles}
        defaults = {role: value for role, value in self.defaults.items() if role not in roles}
        return replace(self, parameters=words, defaults=defaults)

    def of_keys_alone(self) -> Offer:
        """Return the offer with its mask treated as a key padding mask."""
        words, defaults = (
            {"padding" if role == "mask" else role: value for role, value in said.items()}
            for said in (self.parameters, self.defaults)
        )
        return replace(self, parameters=words, defaults=defaults)


def offered(function: Any, name: str) -> Offer:
    """Return what a function takes.

    Raises:
        UserError: it takes neither q, k, v nor x, W_q, W_k, W_v, or requires an argument of unknown meaning.
    """
    parameters = parameters_of(function, name)
    named: dict[str, inspect.Parameter] = {}
    guessed = False
    spoken = [given for given in parameters if role_of(given.name) != "scale" or not is_switch(given)]
    for given in spoken:
        if plain(given.name) in BY_NAME:
            named.setdefault(BY_NAME[plain(given.name)], given)
    for given in spoken:
        if given not in named.values() and role_of(given.name):
            named.setdefault(role_of(given.name), given)
    switch = next(filter(turns_masks_on, parameters), None)
    if switch is not None and not set(named) & {"mask", "padding", "causal", "lengths"}:
        named["causal"] = switch
    if not set(CORE) <= set(named) and not set(LAYER) <= set(named):
        first = [given for given in parameters if given.default is given.empty and positional(given)]
        if len(first) != len(CORE) or any(role in named for role in ("x", "W_q")):
            taken = ", ".join(given.name for given in parameters) or "nothing"
            expected = "q, k, v, or x, W_q, W_k, W_v; docs/check.md shows a wrapper of three lines"
            raise UserError(f"{name} takes {taken}; expected {expected}")
        named = dict(zip(CORE, first, strict=True)) | {
            role: given for role, given in named.items() if given not in first
        }
        guessed = True
    tell_switches_from_masks(named)
    core = set(CORE) <= set(named)
    known = {given.name for given in named.values()}
    for given in parameters:
        if (
            given.default is given.empty
            and given.name not in known
            and given.kind not in (given.VAR_POSITIONAL, given.VAR_KEYWORD)
        ):
            raise UserError(
                f"{name} needs {given.name!r}, which nobody here knows; give it a default, or wrap the function"
            )
    unnamed = tuple(role for role, given in named.items() if given.kind is given.POSITIONAL_ONLY)
    defaults = {role: told(given.default) for role, given in named.items() if given.default is not given.empty}
    return Offer(core, {role: given.name for role, given in named.items()}, unnamed, defaults, guessed=guessed)


def role_of(name: str) -> str:
    """Return the role of a parameter name, or an empty string; parts may say a mask: `src_mask`, `key_pad_mask`.

    The adjacency matrix of a graph is a mask too, and so are lengths of batch entries (`memory_seq_lengths`), but not
    one number (`max_len`).
    """
    if plain(name) in BY_NAME:
        return BY_NAME[plain(name)]
    parts = words_in(name)
    words = set(parts)
    if words & {"lens", "lengths", "seqlens"} and not words & NO_LENGTH:
        return "lengths"
    masks = {"mask", "masks", "masking", "adj", "adjacency"}
    if not words & masks or words & NO_MASK or (words & MASKED and parts[-1] not in masks):
        return ""
    return "padding" if words & {"pad", "padding", "key", "keys"} else "mask"


NO_LENGTH = {"q", "query", "queries", "max", "tgt", "target", "cu", "cum", "cumulative"}
"""Words that, beside `lengths` in a name, show that it holds no key lengths, such as cumulative ones."""
MASKED = {"token", "tokens"}
"""Words that, after `mask` in a name, show that it holds no mask, as in `mask_token`."""
NO_MASK = {"value", "fill", "type", "use", "is", "with", "return", "index", "mode", "flag", "fn", "func",
           "mod", "ratio", "prob", "default", "no", "has", "add", "causal", "head", "layer", "need", "apply",
           "do", "drop", "dropout", "query", "queries", "q", "loss"}  # fmt: skip
"""Words that, beside `mask` in a name, show that it holds no mask."""


def told(default: Any) -> Any:
    """Return a default if it is a plain value, else `...`, which only records that there is one."""
    return default if default is None or isinstance(default, bool | int | float | str | tuple | np.generic) else ...


def tell_switches_from_masks(named: dict[str, inspect.Parameter]) -> None:
    """Correct roles in place: a boolean `mask` is "causal", and a `causal_mask` that takes an array is "mask".

    If a function takes two such arrays, the other one is the padding mask.
    """
    if "mask" in named and is_switch(named["mask"]):
        named.setdefault("causal", named.pop("mask"))
    elif "causal" in named and is_array_of_mask(named["causal"]):
        if "mask" in named:  # the names say which mask is the causal one
            named.setdefault("padding", named.pop("mask"))
        named["mask"] = named.pop("causal")


def is_array_of_mask(given: inspect.Parameter) -> bool:
    """Return whether a parameter for a causal mask takes the mask itself, as `causal_mask=None` does, not a flag."""
    return "mask" in plain(given.name) and given.default is None and "bool" not in str(given.annotation)


def role_taken(given: inspect.Parameter) -> str:
    """Return the role of a parameter by its name and default; a boolean `scale=True` is a flag and has none."""
    role = role_of(given.name)
    if role == "scale" and is_switch(given):
        return ""
    return "mask" if role == "causal" and is_array_of_mask(given) else role


def roles_taken(parameters: Iterable[inspect.Parameter]) -> dict[str, str]:
    """Return the role of each parameter; a flag such as `do_mask=False` means causal if no mask is taken.

    So does `mask: bool`, which takes no array.
    """
    roles = {given.name: role_taken(given) for given in parameters}
    roles |= {given.name: "" for given in parameters if given.annotation in (bool, "bool") and turns_masks_on(given)}
    if not set(roles.values()) & {"mask", "padding", "causal", "lengths"}:
        roles |= {given.name: "causal" for given in parameters if turns_masks_on(given)}
    return roles


def turns_masks_on(given: inspect.Parameter) -> bool:
    """Return whether a parameter is a flag whose name only says that masking is on: `use_mask`, `do_mask`."""
    words = {*words_in(given.name)}
    return is_switch(given) and bool(words & {"mask", "masking", "masked"}) and words <= OF_SWITCHES


OF_SWITCHES = {"mask", "masking", "masked", "do", "use", "apply", "with", "is", "add", "enable", "flag"}


def is_switch(given: inspect.Parameter) -> bool:
    """Return whether a parameter is boolean, by its default or annotation."""
    return isinstance(given.default, bool) or given.annotation in (bool, "bool")


def positional(given: inspect.Parameter) -> bool:
    """Return whether a parameter can be passed by position."""
    return given.kind in (given.POSITIONAL_ONLY, given.POSITIONAL_OR_KEYWORD)


def parameters_of(function: Any, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a function, except masks that it never reads (see `set_aside`).

    Raises:
        UserError: its parameters cannot be determined.
    """
    every = every_parameter(function, name)
    aside = set_aside(function, every, role_of)
    return [one for one in every if one not in aside]


def words_set_aside(function: Any) -> list[str]:
    """Return the names of masks that a function takes but never reads (see `set_aside`)."""
    return [one.name for one in set_aside(function, every_parameter(function, ""), role_of)]


def every_parameter(function: Any, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a function: of its signature, its TorchScript schema or its docstring.

    Raises:
        UserError: its parameters cannot be determined.
    """
    schema = getattr(function, "schema", None)
    if type(function).__name__ in ("ScriptMethod", "ScriptFunction") and schema is not None:  # TorchScript
        kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
        return [inspect.Parameter(given.name, kind, annotation=str(given.type), default=(
            given.default_value if given.has_default_value() else inspect.Parameter.empty
        )) for given in schema.arguments if given.name != "self"]  # fmt: skip
    try:
        taken = list(inspect.signature(function).parameters.values())
        return taken if any(one.kind not in STARS for one in taken) else behind_stars(function) or taken
    except (TypeError, ValueError):
        documented = getattr(function, "__doc__", None)
    text = documented if isinstance(documented, str) else ""
    written = re.search(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text)
    if written is None:
        raise UserError(f"{name}: what it takes is not known; wrap it in a function of q, k and v")
    words = [word for word in re.split(r",\s*", written.group(1)) if re.match(r"\w", word)]
    if not all(re.fullmatch(r"\w+\s*(:.*)?(=.*)?", word, re.DOTALL) for word in words):  # prose in brackets
        raise UserError(f"{name}: what it takes is not known; wrap it in a function of q, k and v")
    return [parameter(word) for word in words]


def behind_stars(function: Any) -> list[inspect.Parameter]:
    """Return the parameters behind a bare `*args, **kwargs`: of a class's `__init__`, or of a wrapper's `func`."""
    inner = vars(function).get("__init__") if inspect.isclass(function) else getattr(function, "func", None)
    if not callable(inner):
        return []
    first = (None,) if inspect.isclass(function) else tuple(getattr(function, "args", ()))
    whole = partial(inner, *first, **getattr(function, "keywords", {}))
    return list(inspect.signature(whole).parameters.values())


STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def parameter(word: str) -> inspect.Parameter:
    """Parse a parameter as it is written, such as `scale=None` or `q: Tensor`."""
    named, _, default = word.partition("=")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    name = named.partition(":")[0].strip()
    return inspect.Parameter(name, kind, default=default.strip() if default else inspect.Parameter.empty)


def words_in(name: str) -> list[str]:
    """Return the words of a name in lower case, without digits: `srcKeyMask_2` has three."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def plain(name: str) -> str:
    """Return a name in lower case without underscores."""
    return name.replace("_", "").lower()


# A case as keyword arguments; what has no keyword, the function must do by itself

SCORES: dict[type, str] = {Softcap: "softcap", Alibi: "alibi", Sink: "sinks", Added: "added"}
OWN_WORD: dict[type, str] = {Causal: "causal", Window: "window", Padding: "lengths"}
"""The role of the keyword that requests a mask by itself."""


def for_case(case: Case, offer: Offer, request: Request, wide: bool = False) -> dict[str, Any]:
    """Return the keyword arguments of a case, by role; `wide`: the function splits heads itself, as a layer does."""
    at = at_of(case)
    return {
        **unasked(at, offer, request),
        **spoken_masks(case.recipe, at, offer, request),
        **spoken_scores(case.recipe, at, offer),
        **spoken_heads(case, at, offer, wide or case.given.x is not None),
    }


def unasked(at: At, offer: Offer, request: Request) -> dict[str, Any]:
    """Return neutral values for arguments that must be passed anyway: full lengths, a mask that hides nothing."""
    neutral: dict[str, Any] = {
        "lengths": np.full(at.batch, at.keys, np.int64),
        "mask": np.full((at.rows, at.keys), not request.blocks),
        "padding": np.full((at.batch, at.keys), not request.blocks),
        "query_padding": np.full((at.batch, at.rows), not request.blocks),
        "causal": False,
    }
    needed = {role for role in neutral if offer.takes(role) and role not in offer.defaults}
    needed |= {"causal"} if offer.defaults.get("causal") is True else set()
    return {role: value for role, value in neutral.items() if role in needed}


def is_required(given: inspect.Parameter) -> bool:
    """Return whether a parameter has no default and is not `*args` or `**kwargs`."""
    return given.default is given.empty and not is_starred(given)


def is_starred(given: inspect.Parameter) -> bool:
    """Return whether a parameter is `*args` or `**kwargs`."""
    return given.kind in (given.VAR_POSITIONAL, given.VAR_KEYWORD)


def at_of(case: Case) -> At:
    """Return the sizes of a case."""
    recipe, given = case.recipe, case.given
    if given.x is not None:
        batch, rows, width = given.x.shape
        size = given.arrays["W_q"].shape[1] // recipe.heads
        keys = rows if given.memory is None else given.memory.shape[1]
        return At(recipe.rules, batch, recipe.heads, recipe.groups, rows, keys, size, width)
    assert given.q is not None and given.k is not None
    batch, heads, rows, size = given.q.shape
    return At(recipe.rules, batch, heads, given.k.shape[1], rows, given.k.shape[2], size, heads * size)


def spoken_masks(recipe: Recipe, at: At, offer: Offer, request: Request) -> dict[str, Any]:
    """Return the keyword arguments for masks: each by its own keyword, the rest joined in one boolean mask."""
    said: dict[str, Any] = {}
    rest: list[Mask] = []
    for mask in recipe.rules.masks:
        word = OWN_WORD.get(type(mask), "")
        if word and offer.takes(word) and word not in said:
            said[word] = own_word(mask, offer, at)
        elif isinstance(mask, Padding | Filler) and offer.takes("padding"):
            said["padding"] = filler(mask, at, request)
            if offer.takes("query_padding"):  # some need both or none
                said["query_padding"] = np.full((at.batch, at.rows), not request.blocks)
        else:
            rest.append(mask)
    if rest and offer.takes("mask"):
        said["mask"] = boolean(rest, at, request)
    return said


def own_word(mask: Mask, offer: Offer, at: At) -> Any:
    """Return the value for a mask's own keyword."""
    if isinstance(mask, Window):
        default = offer.defaults.get("window")
        one_number = isinstance(default, int) and not isinstance(default, bool)
        return mask.left + 1 if one_number else (mask.left, mask.right)
    if isinstance(mask, Padding):
        lengths = np.ravel(mask.lengths)
        return np.broadcast_to(lengths, (at.batch,)).astype(np.int64)
    return True


def filler(mask: Padding | Filler, at: At, request: Request) -> Array:
    """Return a padding mask `[b s]`: True = attend, or True = padding if the convention says so."""
    kept = kept_by(mask, at)
    return ~kept if request.blocks else kept


def kept_by(mask: Padding | Filler, at: At) -> Array:
    """Return which keys are not padding, `[b s]`."""
    if isinstance(mask, Filler):
        kept = np.resize(mask.kept, at.keys)
    else:
        places, lengths = np.arange(at.keys), np.ravel(mask.lengths)[:, None]
        kept = places != lengths if isinstance(mask, Gap) else places < lengths
    return np.broadcast_to(kept, (at.batch, at.keys)).copy()


def boolean(masks: list[Mask], at: At, request: Request) -> Array:
    """Return one boolean mask, `[t s]` if batch and heads share it, else with axes for them."""
    rules = at.rules.__class__(masks=tuple(masks), offset=at.rules.offset)
    whole = steps.allowed(At(rules, at.batch, at.heads, at.groups, at.rows, at.keys, at.size, at.width))
    shared = whole[0, 0] if whole.shape[:2] == (1, 1) else whole
    written = any(isinstance(mask, Allowed) for mask in masks) or bool(masks)
    return ~shared if request.blocks and written else shared


def spoken_scores(recipe: Recipe, at: At, offer: Offer) -> dict[str, Any]:
    """Return the keyword arguments for score rules."""
    said: dict[str, Any] = {}
    for rule in recipe.rules.scores:
        word = SCORES.get(type(rule), "")
        if not word or not offer.takes(word):
            continue
        if isinstance(rule, Softcap):
            said[word] = float(rule.cap)
        elif isinstance(rule, Alibi):
            said[word] = np.array(slopes(at.heads))
        elif isinstance(rule, Sink):
            said[word] = np.broadcast_to(np.ravel(np.asarray(rule.logit, np.float64)), (at.heads,)).copy()
        elif isinstance(rule, Added):
            said[word] = np.asarray(rule.values, np.float64)
    return said


def spoken_heads(case: Case, at: At, offer: Offer, wide: bool) -> dict[str, Any]:
    """Return the keyword arguments for heads, scale and dropout, which is always off."""
    said: dict[str, Any] = {}
    if offer.takes("heads") and (wide or "heads" not in offer.defaults):
        said["heads"] = case.recipe.heads
    if offer.takes("kv_heads") and (wide or "kv_heads" not in offer.defaults):
        said["kv_heads"] = case.recipe.groups
    if offer.takes("shared") and at.groups != at.heads:
        said["shared"] = True
    needed = offer.takes("scale") and "scale" not in offer.defaults
    if offer.takes("scale") and (case.explicit_scale or needed):
        scale = float(case.recipe.rules.scale)
        said["scale"] = 1 / scale if offer.divides else scale
    if offer.takes("dropout") and offer.defaults.get("dropout", 0.0) is not None:
        said["dropout"] = 0.0
    return said
