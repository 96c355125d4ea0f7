"""What a function takes, read from the names of its parameters, and what a case says in them."""

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
"""Each role and the names that it has in the wild, in small letters without underscores."""

BY_NAME = {name: role for role, names in ROLES.items() for name in names}
CORE, LAYER = ("q", "k", "v"), ("x", "W_q", "W_k", "W_v")


@dataclass(frozen=True)
class Offer:
    """What a function takes: `core` takes heads, else it takes x and a layer's matrices.

    `parameters` gives each role the function's own name for it; `positional` are those that have no name to be called
    by; `defaults` holds what the function itself would take. `layouts` are the only ones that it can be given, where
    they are known, `said` what its other arguments are given, in words, and
    `guessed` that their names did not say which of them hold the arrays; `only_if_right`, that nothing did, so that a
    wrong answer is no wrong attention. `divides` says that scores are divided by the scale that is passed. `own_keys`
    counts keys of a layer that are no token's, learned ones that were set to 0. `unscaled` says that it is a layer of
    one head over the points of an image, of one query over states that are keys and values at once, or one without
    biases and with a table of positions, or one that norms queries and keys: non-local networks, SAGAN, Luong's dot
    score, T5 and Gemma 3n scale nothing. `turned`
    says that a layer's matrices, W_o too, are handed over as `nn.Linear` holds them, `[out in]`.
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
        """Say whether there is a parameter for that role."""
        return role in self.parameters

    def without(self, *roles: str) -> Offer:
        """Return the same without words for some roles, whose defaults are the function's own affair then."""
        words = {role: word for role, word in self.parameters.items() if role not in roles}
        defaults = {role: value for role, value in self.defaults.items() if role not in roles}
        return replace(self, parameters=words, defaults=defaults)

    def of_keys_alone(self) -> Offer:
        """Return the same with its word for a mask as one that can say no more than which keys are padding."""
        words, defaults = (
            {"padding" if role == "mask" else role: value for role, value in said.items()}
            for said in (self.parameters, self.defaults)
        )
        return replace(self, parameters=words, defaults=defaults)


def offered(function: Any, name: str) -> Offer:
    """Return what a function takes.

    Raises:
        UserError: it takes neither q, k and v nor x and W_q, W_k, W_v, or needs something that nobody knows.
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
    """Return the role that a name has, or may have as it speaks of a mask: `src_mask`, `mask_bool`, `key_pad_mask`.

    The adjacency of a graph is one: it says which token may attend to which.
    Lengths of entries say a mask too: `memory_seq_lengths`; one number, as `max_len`, does not.
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
"""Words beside `lengths` of names that hold no lengths of keys: where texts end that lie in a row is none."""
MASKED = {"token", "tokens"}
"""Words of names that hold no mask where they come after it, as in `mask_token`."""
NO_MASK = {"value", "fill", "type", "use", "is", "with", "return", "index", "mode", "flag", "fn", "func",
           "mod", "ratio", "prob", "default", "no", "has", "add", "causal", "head", "layer", "need", "apply",
           "do", "drop", "dropout", "query", "queries", "q", "loss"}  # fmt: skip
"""Words beside `mask` of names that hold none."""


def told(default: Any) -> Any:
    """Return a default where it is a plain value; of others all that counts is that there is one."""
    return default if default is None or isinstance(default, bool | int | float | str | tuple | np.generic) else ...


def tell_switches_from_masks(named: dict[str, inspect.Parameter]) -> None:
    """Give a word for a mask that is a switch the role of one for causal, which most mean, and the other way round.

    Beside a causal mask that is an array, another mask says which keys are padding.
    """
    if "mask" in named and is_switch(named["mask"]):
        named.setdefault("causal", named.pop("mask"))
    elif "causal" in named and is_array_of_mask(named["causal"]):
        if "mask" in named:  # which of two masks is the causal one is said
            named.setdefault("padding", named.pop("mask"))
        named["mask"] = named.pop("causal")


def is_array_of_mask(given: inspect.Parameter) -> bool:
    """Say whether a word for a causal mask holds the mask, as `causal_mask=None` does, and is no switch."""
    return "mask" in plain(given.name) and given.default is None and "bool" not in str(given.annotation)


def role_taken(given: inspect.Parameter) -> str:
    """Return the role of a parameter by its name and its default; `scale=True` is a switch, and no number."""
    role = role_of(given.name)
    if role == "scale" and is_switch(given):
        return ""
    return "mask" if role == "causal" and is_array_of_mask(given) else role


def roles_taken(parameters: Iterable[inspect.Parameter]) -> dict[str, str]:
    """Return the role of each parameter: one that switches masks on, as `do_mask=False` does, is causal beside none.

    So is a `mask: bool`, which takes no array.
    """
    roles = {given.name: role_taken(given) for given in parameters}
    roles |= {given.name: "" for given in parameters if given.annotation in (bool, "bool") and turns_masks_on(given)}
    if not set(roles.values()) & {"mask", "padding", "causal", "lengths"}:
        roles |= {given.name: "causal" for given in parameters if turns_masks_on(given)}
    return roles


def turns_masks_on(given: inspect.Parameter) -> bool:
    """Say whether a parameter is a switch whose name speaks of masks and of switching alone: `use_mask`, `do_mask`."""
    words = {*words_in(given.name)}
    return is_switch(given) and bool(words & {"mask", "masking", "masked"}) and words <= OF_SWITCHES


OF_SWITCHES = {"mask", "masking", "masked", "do", "use", "apply", "with", "is", "add", "enable", "flag"}


def is_switch(given: inspect.Parameter) -> bool:
    """Say whether an argument is True or False, by its default or its note."""
    return isinstance(given.default, bool) or given.annotation in (bool, "bool")


def positional(given: inspect.Parameter) -> bool:
    """Say whether an argument may be given by its place."""
    return given.kind in (given.POSITIONAL_ONLY, given.POSITIONAL_OR_KEYWORD)


def parameters_of(function: Any, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a function but words for masks that its code never reads beside one that it reads.

    Raises:
        UserError: what it takes is not known.
    """
    every = every_parameter(function, name)
    aside = set_aside(function, every, role_of)
    return [one for one in every if one not in aside]


def words_set_aside(function: Any) -> list[str]:
    """Return the words for masks that a function takes and never reads, beside one that counts."""
    return [one.name for one in set_aside(function, every_parameter(function, ""), role_of)]


def every_parameter(function: Any, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a function; of a compiled one, those of its schema, or that its documentation begins
    with.

    Raises:
        UserError: what it takes is not known.
    """
    schema = getattr(function, "schema", None)
    if type(function).__name__ in ("ScriptMethod", "ScriptFunction") and schema is not None:  # PyTorch's own compiler
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
    if not all(re.fullmatch(r"\w+\s*(:.*)?(=.*)?", word, re.DOTALL) for word in words):  # a remark in brackets
        raise UserError(f"{name}: what it takes is not known; wrap it in a function of q, k and v")
    return [parameter(word) for word in words]


def behind_stars(function: Any) -> list[inspect.Parameter]:
    """Return what a class takes whose own maker has stars alone, or what is a part of another function, as a method is
    that JAX compiles; nothing of others."""
    inner = vars(function).get("__init__") if inspect.isclass(function) else getattr(function, "func", None)
    if not callable(inner):
        return []
    first = (None,) if inspect.isclass(function) else tuple(getattr(function, "args", ()))
    whole = partial(inner, *first, **getattr(function, "keywords", {}))
    return list(inspect.signature(whole).parameters.values())


STARS = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)


def parameter(word: str) -> inspect.Parameter:
    """Return a parameter as it is written, such as `scale=None` or `q: Tensor`."""
    named, _, default = word.partition("=")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    name = named.partition(":")[0].strip()
    return inspect.Parameter(name, kind, default=default.strip() if default else inspect.Parameter.empty)


def words_in(name: str) -> list[str]:
    """Return the words of a name in small letters, without numbers: `srcKeyMask_2` has three."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def plain(name: str) -> str:
    """Return a name in small letters without underscores."""
    return name.replace("_", "").lower()


# A case in the words of a function; what it has no keyword for, it must do by itself

SCORES: dict[type, str] = {Softcap: "softcap", Alibi: "alibi", Sink: "sinks", Added: "added"}
OWN_WORD: dict[type, str] = {Causal: "causal", Window: "window", Padding: "lengths"}
"""The keyword that says a mask by itself."""


def for_case(case: Case, offer: Offer, request: Request, wide: bool = False) -> dict[str, Any]:
    """Return the keywords of a case, by role; `wide`: the function splits heads itself, as a layer does."""
    at = at_of(case)
    return {
        **unasked(at, offer, request),
        **spoken_masks(case.recipe, at, offer, request),
        **spoken_scores(case.recipe, at, offer),
        **spoken_heads(case, at, offer, wide or case.given.x is not None),
    }


def unasked(at: At, offer: Offer, request: Request) -> dict[str, Any]:
    """Return what a function must be given though nobody asks for it: full lengths, a mask that allows all."""
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
    """Say whether a parameter has no default and is no star."""
    return given.default is given.empty and not is_starred(given)


def is_starred(given: inspect.Parameter) -> bool:
    """Say whether a parameter stands for many arguments."""
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
    """Return the keywords for the masks: each by its own word, the others joined as one boolean mask."""
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
    """Return what a mask's own keyword is given."""
    if isinstance(mask, Window):
        default = offer.defaults.get("window")
        one_number = isinstance(default, int) and not isinstance(default, bool)
        return mask.left + 1 if one_number else (mask.left, mask.right)
    if isinstance(mask, Padding):
        lengths = np.ravel(mask.lengths)
        return np.broadcast_to(lengths, (at.batch,)).astype(np.int64)
    return True


def filler(mask: Padding | Filler, at: At, request: Request) -> Array:
    """Return `[b s]`, True = may attend, or True = filler where the convention says so."""
    kept = kept_by(mask, at)
    return ~kept if request.blocks else kept


def kept_by(mask: Padding | Filler, at: At) -> Array:
    """Return which keys are no filler, `[b s]`."""
    if isinstance(mask, Filler):
        kept = np.resize(mask.kept, at.keys)
    else:
        places, lengths = np.arange(at.keys), np.ravel(mask.lengths)[:, None]
        kept = places != lengths if isinstance(mask, Gap) else places < lengths
    return np.broadcast_to(kept, (at.batch, at.keys)).copy()


def boolean(masks: list[Mask], at: At, request: Request) -> Array:
    """Return one boolean mask, `[t s]` where all entries and heads share it, else as many axes as it needs."""
    rules = at.rules.__class__(masks=tuple(masks), offset=at.rules.offset)
    whole = steps.allowed(At(rules, at.batch, at.heads, at.groups, at.rows, at.keys, at.size, at.width))
    shared = whole[0, 0] if whole.shape[:2] == (1, 1) else whole
    written = any(isinstance(mask, Allowed) for mask in masks) or bool(masks)
    return ~shared if request.blocks and written else shared


def spoken_scores(recipe: Recipe, at: At, offer: Offer) -> dict[str, Any]:
    """Return the keywords for score rules."""
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
    """Return the keywords for heads, the scale, and dropout, which is always off."""
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
