"""Infer the roles of arguments, arrays and matrices from names, and find masks that the code never reads."""

from __future__ import annotations

import dis
import functools
import inspect
import re
import sys
from collections.abc import Collection, Iterator, Sequence
from functools import partial
from types import CodeType
from typing import Any

from attn_exp.errors import UserError


def read_names(table: str) -> dict[str, tuple[str, ...]]:
    """Read lines of the form `role: name name ...`."""
    return {role: tuple(names.split()) for role, names in (line.split(":") for line in table.strip().splitlines())}


ROLES = read_names("""
q: q query queries qs
k: k key keys ks
v: v value values vs
x: x inputs input hiddenstates embeddings embedding tokens xs hidden
W_q: wq wquery queryweight qweight weightq qproj wqs queryw
W_k: wk wkey keyweight kweight weightk kproj wks keyw
W_v: wv wvalue valueweight vweight weightv vproj wvs valuew
W_o: wo wout woutput outweight outputweight oweight outproj oproj weighto wproj
b_q: bq bquery qbias querybias biasq
b_k: bk bkey kbias keybias biask
b_v: bv bvalue vbias valuebias biasv
b_o: bo bout boutput obias outbias outputbias biaso
mask: mask attnmask attentionmask attnmasks attentionmasks attendmask srcmask
added: bias attnbias attentionbias
padding: keypaddingmask paddingmask keymask padmask pad padding kvmask kmask
query_padding: qmask querymask queriesmask querypaddingmask qpaddingmask
causal: iscausal causal usecausalmask causalmask
scale: scale smscale softmaxscale scaling scalefactor
window: window windowsize localwindowsize slidingwindow
softcap: softcap logitcap attnlogitssoftcap logitsoftcap attnlogitsoftcapping logitssoftcap cap
shared: enablegqa gqa
lengths: lengths seqlens seqlengths kvlengths keylengths keyvalueseqlengths nonpadkvseqlen kvlens seqlensk seqlenskv \
    length validlens validlen validlength validlengths lens inputlengths inputlens sequencelengths srclengths \
    srclens memorylengths memorylens enclens encoderlengths klens keylens actuallengths xlens
alibi: alibislopes slopes alibi
sinks: sinks sink sinklogits attentionsinks sinklogit
heads: numheads nheads head heads nhead nbheads nhheads h numattentionheads numberofheads numofheads
kv_heads: numkvheads nkvheads kvheads kvhead numkeyvalueheads
dropout: dropoutp dropout pdropout dropoutrate
""")
"""Each role with the parameter names used for it in practice, in lower case without underscores."""

BY_NAME = {name: role for role, names in ROLES.items() for name in names}
CORE = ("q", "k", "v")


def role_of(name: str) -> str:
    """Return the role that a parameter name suggests, or an empty string.

    A part of the name may mark a mask, as in `src_mask` or `key_pad_mask`. The adjacency matrix of a graph is a mask
    too. Lengths of examples (`memory_seq_lengths`) have a role, but a single number (`max_len`) has none.
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
"""Words next to `lengths` in names of lengths that are not those of the keys, such as cumulative lengths."""
MASKED = {"token", "tokens"}
"""Words after `mask` in names of arguments that are not masks, such as `mask_token`."""
NO_MASK = frozenset(
    """
    value fill type use is with return index mode flag fn func mod ratio prob default no has add causal head layer
    need apply do drop dropout query queries q loss
    """.split()
)
"""Words next to `mask` in names of arguments that are not masks."""


def is_array_of_mask(given: inspect.Parameter) -> bool:
    """Return whether a parameter for a causal mask takes an array, as `causal_mask=None` does, rather than a flag."""
    return "mask" in plain(given.name) and given.default is None and "bool" not in str(given.annotation)


def role_taken(given: inspect.Parameter) -> str:
    """Return the role of a parameter from its name and default; a boolean `scale=True` is a flag and has none."""
    role = role_of(given.name)
    if role == "scale" and is_switch(given):
        return ""
    return "mask" if role == "causal" and is_array_of_mask(given) else role


def roles_taken(parameters: Sequence[inspect.Parameter]) -> dict[str, str]:
    """Return the role of each parameter.

    A flag such as `do_mask=False` or `mask: bool` means causal if the function takes no mask array. If one array is
    named as a causal mask, any other mask is a padding mask.
    """
    roles = {given.name: role_taken(given) for given in parameters}
    roles |= {given.name: "" for given in parameters if turns_masks_on(given)}
    if not set(roles.values()) & {"mask", "padding", "causal", "lengths"}:
        roles |= {given.name: "causal" for given in parameters if turns_masks_on(given)}
    causal = {given.name for given in parameters if role_of(given.name) == "causal" and roles[given.name] == "mask"}
    others = {name: "padding" for name, role in roles.items() if role == "mask" and name not in causal}
    return roles | (others if causal else {})


def turns_masks_on(given: inspect.Parameter) -> bool:
    words = {*words_in(given.name)}
    return is_switch(given) and bool(words & {"mask", "masking", "masked"}) and words <= OF_SWITCHES


OF_SWITCHES = {"mask", "masking", "masked", "do", "use", "apply", "with", "is", "add", "enable", "flag"}


def is_switch(given: inspect.Parameter) -> bool:
    return isinstance(given.default, bool) or given.annotation in (bool, "bool")


def parameters_of(function: Any, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a function, except masks that it never reads (see `set_aside`).

    Raises:
        UserError: its parameters cannot be determined.
    """
    every = every_parameter(function, name)
    aside = set_aside(function, every)
    return [one for one in every if one not in aside]


def words_set_aside(function: Any) -> list[str]:
    return [one.name for one in set_aside(function, every_parameter(function, ""))]


def every_parameter(function: Any, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a function from its signature, TorchScript schema or docstring.

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
        return taken if not all(map(is_starred, taken)) else parameters_behind_stars(function) or taken
    except (TypeError, ValueError):
        documented = getattr(function, "__doc__", None)
    text = documented if isinstance(documented, str) else ""
    written = re.search(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)", text)
    words = [word for word in re.split(r",\s*", written[1] if written else "") if re.match(r"\w", word)]
    if written is None or not all(re.fullmatch(r"\w+\s*(:.*)?(=.*)?", word, re.DOTALL) for word in words):  # prose
        raise UserError(f"{name}: its parameters cannot be determined; wrap it in a function of q, k and v")
    return [parse_parameter(word) for word in words]


def parameters_behind_stars(function: Any) -> list[inspect.Parameter]:
    inner = vars(function).get("__init__") if inspect.isclass(function) else getattr(function, "func", None)
    if not callable(inner):
        return []
    first = (None,) if inspect.isclass(function) else tuple(getattr(function, "args", ()))
    whole = partial(inner, *first, **getattr(function, "keywords", {}))
    return list(inspect.signature(whole).parameters.values())


def is_required(given: inspect.Parameter) -> bool:
    return given.default is given.empty and not is_starred(given)


def is_starred(given: inspect.Parameter) -> bool:
    return given.kind in (given.VAR_POSITIONAL, given.VAR_KEYWORD)


def parse_parameter(word: str) -> inspect.Parameter:
    named, _, default = word.partition("=")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    name = named.partition(":")[0].strip()
    return inspect.Parameter(name, kind, default=default.strip() if default else inspect.Parameter.empty)


def words_in(name: str) -> list[str]:
    """Return the words of a name in lowercase, without digits: `srcKeyMask_2` has three."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]


def plain(name: str) -> str:
    return name.replace("_", "").lower()


# Which of q, k, v, x or a matrix a name means, by its parts: `queries_BHTD`, `xq`, `key_layer`

SIDES = read_names("""
q: q query queries quer qs xq qq querys qry
k: k key keys ks xk kk
v: v value values val vals vs xv vv
o: o out output wo p last final
qkv: qkv qvk kqv attn in
kv: kv keysvalues context keyvalue keyvalues memory
x: x hidden input inputs embedding embeddings emb tokens xs sequence seq inp features residual source src
""")
"""Parts of argument names, by meaning."""
WEIGHT = frozenset(
    """
    w weight weights kernel proj projection matrix mat linear params param c lin fc to dense net
""".split()
)
FILLING = frozenset(
    """
    state states layer heads head tensor array arr all multi split vec vector vectors bhtd bthd bhld blhd btd btnh
    bshd bhsd bnsd mat projected new rot full ref block chunk embed hat np jnp in raw data seq input inputs the my
    and x 1 2 0 packed mixed fused tensors matrix matrices proj antecedent code feat features map maps
""".split()
)


def parts_of_name(name: str) -> list[str]:
    """Return the parts of a name in lowercase, digits included: `queryStates_BHTD` has three."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def side_of_name(name: str) -> str:
    """Return what a name stands for: q, k, v, x, qkv, kv, or a matrix or bias such as W_q, W_qkv or b_q; else ""."""
    known = BY_NAME.get(plain(name), "")
    if known:
        return known if known in ("q", "k", "v", "x") or known[:2] in ("W_", "b_") else ""
    parts = parts_of_name(name)
    joined = "".join(part for part in parts if part not in FILLING)
    is_weight = any(part in WEIGHT for part in parts) or (len(joined) > 1 and joined[0] == "w")
    core = [part for part in parts if part not in FILLING and part not in WEIGHT]
    if is_weight and len(joined) > 1 and joined[0] == "w" and len(core) == 1:
        core = [core[0].removeprefix("w") or core[0]]
    if not core:
        core = [part for part in parts if part in ("x", "in", "input", "inputs", "features", "proj", "out")][:1]
    core = core if len(core) == 1 else [part for part in core if part not in ("src", "source", "tgt")]
    if len(core) == 2 and set(core) == {"key", "value"}:
        core = ["kv"]
    word = core[0].rstrip("s") if len(core) == 1 else ""
    side = next((side for side, words in SIDES.items() if word in {one.rstrip("s") for one in words}), "")
    if is_weight:
        return f"W_{side}" if side in ("q", "k", "v", "o", "qkv", "kv") else "W" if not side else ""
    return side if side in ("q", "k", "v", "x", "qkv", "kv") else ""


SAYS_WEIGHT, SAYS_BIAS = ("w", "weight", "weights", "kernel", "kernels", "matrix"), ("b", "bias", "biases")


def biases_of(names: Sequence[str]) -> dict[str, str]:
    matrices = {stem: name for name in reversed(names) if (stem := stem_without(name, SAYS_WEIGHT)) is not None}
    biases = {name: stem for name in names if (stem := stem_without(name, SAYS_BIAS)) is not None}
    return {name: matrices[stem] for name, stem in biases.items() if stem in matrices}


def stem_without(name: str, words: Sequence[str]) -> str | None:
    """Remove one of the words, or its initial, from a name (`c_attn_w`, `Wq`); return None if the name has neither."""
    parts = parts_of_name(name)
    rest = [part for part in parts if part not in words]
    if len(rest) < len(parts):
        return "".join(rest)
    if name in parts or name.lower() in parts:
        return name.lower()[1:] if len(name) <= SHORT and name[0].lower() == words[0] else None
    return None


SHORT = 4
"""Maximum length of a name such as `wq` or `bqkv`, whose first letter tells weight from bias."""


# Mask parameters that a function takes but never reads: another parameter may be the real mask

OF_MASKS = ("mask", "padding", "causal")
PROTOCOL = "mask"
"""The keyword under which Keras passes the mask of an embedding; many layers accept it only for that reason."""

HINT = "is_causal"
"""An optimization hint of `torch.nn.MultiheadAttention`, which still requires the mask itself."""


def set_aside(function: Any, parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the mask parameters that the code of a function never reads and that a call can omit.

    The function must read another mask parameter, or take this one only by Keras or PyTorch convention: a function's
    only mask parameter is otherwise always tested. A parameter that is passed on counts as read.
    """
    words = {one.name: role for one in parameters if (role := role_of(one.name)) in OF_MASKS}
    lost = never_read(function, words) if words else set()
    read = set(words) - lost
    roles, named = {words[word] for word in read}, {one.name for one in parameters}

    def is_aside(one: inspect.Parameter) -> bool:
        if one.name not in lost or one.default is one.empty:
            return False
        if words[one.name] == "causal":
            return one.name == HINT and "mask" in roles and "need_weights" in named
        of_protocol = one.name == PROTOCOL and is_of_keras(function)
        return of_protocol or words[one.name] in roles or (bool(read) and words[one.name] == "mask")

    return [one for one in parameters if is_aside(one)]


def never_read(function: Any, words: Collection[str]) -> set[str]:
    inner = inspect.unwrap(getattr(function, "__func__", function)) if inspect.isroutine(function) else None
    code = getattr(inner, "__code__", None)
    if code is None or "locals" in code.co_names:
        return set()
    own = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    return {word for word in words if word in own} - names_loaded(code)


def names_loaded(code: CodeType) -> set[str]:
    found = set[str]()
    for step in (step for one in codes_in(code) for step in dis.get_instructions(one)):
        if step.opname.startswith("LOAD_") or "_LOAD_" in step.opname:
            found |= set(step.argval) if isinstance(step.argval, tuple) else {str(step.argval)}
    return found


def is_of_keras(function: Any) -> bool:
    kinds = type(getattr(function, "__self__", None)).__mro__
    return any(kind.__module__.partition(".")[0] in ("keras", "tf_keras", "tensorflow") for kind in kinds)


# The source of functions and classes, and their compiled code


def source_of(thing: Any) -> str:
    """Return the source of a function or class, or of an object's class; an empty string if it has none."""
    kind: Any = thing if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing)
    return read_source(kind)


def source_with_helpers(thing: Any, *, classes: bool = False) -> str:
    """Return the source of code and of the functions and base classes that it uses from its file.

    `classes` includes the other classes that it uses.
    """
    kind: Any = thing if inspect.isclass(thing) or inspect.isroutine(thing) else type(thing)
    return read_sources(kind, classes)


@functools.lru_cache(maxsize=256)
def read_sources(thing: Any, classes: bool) -> str:
    home = getattr(thing, "__module__", None) or ""
    names, code, ahead, met = vars(sys.modules.get(home, inspect)), "", [thing], list[Any]()
    while ahead:
        one = ahead.pop()
        if any(one is other for other in met):
            continue
        met.append(one)
        source = source_of(one)
        code += source
        used = (names.get(word) for word in dict.fromkeys(re.findall(r"\w+", source)))
        ahead += [other for other in used if (inspect.isfunction(other) or (classes and inspect.isclass(other)))
                  and other.__module__ == home]  # fmt: skip
        ahead += one.__bases__ if inspect.isclass(one) else ()
    return code


@functools.lru_cache(maxsize=256)
def read_source(thing: Any) -> str:
    """Return source code, cached because `inspect` parses the whole file for each class before Python 3.13."""
    try:
        return inspect.getsource(thing)
    except (OSError, TypeError):
        return ""


def codes_in(code: CodeType) -> Iterator[CodeType]:
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from codes_in(inner)
