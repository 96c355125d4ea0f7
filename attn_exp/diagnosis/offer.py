"""What a function takes, read from the names of its parameters."""

from __future__ import annotations

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from attn_exp.errors import UserError

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
    "mask": ("mask", "attnmask", "attentionmask", "attendmask", "srcmask"),
    "added": ("bias", "attnbias", "attentionbias"),
    "padding": ("keypaddingmask", "paddingmask", "keymask", "padmask"),
    "causal": ("iscausal", "causal", "usecausalmask", "causalmask"),
    "scale": ("scale", "smscale", "softmaxscale", "scaling", "scalefactor"),
    "window": ("window", "windowsize", "localwindowsize", "slidingwindow"),
    "softcap": ("softcap", "logitcap", "logitsoftcap", "attnlogitsoftcapping", "logitssoftcap", "cap"),
    "shared": ("enablegqa", "gqa"),
    "lengths": ("lengths", "seqlens", "seqlengths", "kvlengths", "keylengths", "keyvalueseqlengths", "nonpadkvseqlen",
                "kvlens", "seqlensk", "seqlenskv", "length", "validlens"),
    "alibi": ("alibislopes", "slopes", "alibi"),
    "sinks": ("sinks", "sink", "sinklogits", "attentionsinks", "sinklogit"),
    "heads": ("numheads", "nheads", "head", "heads", "nhead", "nbheads", "nhheads", "h", "numattentionheads"),
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
    by; `defaults` holds what the function itself would take.
    """

    core: bool
    parameters: Mapping[str, str]
    positional: tuple[str, ...]
    defaults: Mapping[str, Any]

    def takes(self, role: str) -> bool:
        """Say whether there is a parameter for that role."""
        return role in self.parameters


def offered(function: Any, name: str) -> Offer:
    """Return what a function takes.

    Raises:
        UserError: it takes neither q, k and v nor x and W_q, W_k, W_v, or needs something that nobody knows.
    """
    parameters = parameters_of(function, name)
    named: dict[str, inspect.Parameter] = {}
    for given in parameters:
        if plain(given.name) in BY_NAME:
            named.setdefault(BY_NAME[plain(given.name)], given)
    if not set(CORE) <= set(named) and not set(LAYER) <= set(named):
        first = [given for given in parameters if given.default is given.empty and positional(given)]
        if len(first) != len(CORE) or any(role in named for role in ("x", "W_q")):
            raise UserError(misfit(name, parameters))
        named = dict(zip(CORE, first, strict=True)) | {
            role: given for role, given in named.items() if given not in first
        }
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
    defaults = {role: given.default for role, given in named.items() if given.default is not given.empty}
    return Offer(core, {role: given.name for role, given in named.items()}, unnamed, defaults)


def positional(given: inspect.Parameter) -> bool:
    return given.kind in (given.POSITIONAL_ONLY, given.POSITIONAL_OR_KEYWORD)


def misfit(name: str, parameters: list[inspect.Parameter]) -> str:
    """Say what the function takes, and what was expected."""
    taken = ", ".join(given.name for given in parameters) or "nothing"
    return f"{name} takes {taken}; expected q, k, v, or x, W_q, W_k, W_v; docs/check.md shows a wrapper of three lines"


def parameters_of(function: Any, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a function; of a compiled one, those that its documentation begins with."""
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        pass
    written = re.search(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)", getattr(function, "__doc__", None) or "")
    if written is None:
        raise UserError(f"{name}: what it takes is not known; wrap it in a function of q, k and v")
    return [parameter(word) for word in re.split(r",\s*", written.group(1)) if re.match(r"\w", word)]


def parameter(word: str) -> inspect.Parameter:
    """Return a parameter as it is written, such as `scale=None` or `q: Tensor`."""
    named, _, default = word.partition("=")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    name = named.partition(":")[0].strip()
    return inspect.Parameter(name, kind, default=default.strip() if default else inspect.Parameter.empty)


def plain(name: str) -> str:
    """Return a name in small letters without underscores."""
    return name.replace("_", "").lower()
