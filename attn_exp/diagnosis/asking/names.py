"""Infer the roles of arguments, arrays and matrices from names, and find masks that the code never reads.

A *role* is what an argument is for: `role_of("key_padding_mask")` is "padding", and `role_of("num_heads")` is "heads".
An array or matrix may have a longer name: `side_of_name("queries_BHTD")` is "q", and `side_of_name("c_attn_w")` is
"W_qkv".
"""

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
"""The role of each of these names."""
NOT_KEY_LENGTHS = {"q", "query", "queries", "max", "tgt", "target", "cu", "cum", "cumulative"}
"""A name with one of these words does not mean the keys' lengths; `cu_seqlens`, for example, is cumulative."""
MASK_WORDS = {"mask", "masks", "masking", "adj", "adjacency"}
"""Words that mark a mask in a longer name."""
MASK_FILLS = {"token", "tokens"}
"""Words after `mask` in names of arguments that are not masks, such as `mask_token`."""
NOT_MASKS = frozenset(
    """
    value fill type use is with return index mode flag fn func mod ratio prob default no has add causal head layer
    need apply do drop dropout query queries q loss
    """.split()
)
"""Words next to `mask` in names of arguments that are not masks."""
SWITCH_WORDS = {"mask", "masking", "masked", "do", "use", "apply", "with", "is", "add", "enable", "flag"}
"""The name of a flag that turns masks on consists of these words only."""
ARRAY_PARTS = read_names("""
q: q query queries quer qs xq qq querys qry
k: k key keys ks xk kk
v: v value values val vals vs xv vv
o: o out output wo p last final
qkv: qkv qvk kqv attn in
kv: kv keysvalues context keyvalue keyvalues memory
x: x hidden input inputs embedding embeddings emb tokens xs sequence seq inp features residual source src
""")
"""Parts of argument names that say which array it is: `o` is the output, `qkv` and `kv` are joined arrays."""
WEIGHT_PARTS = frozenset(
    """
    w weight weights kernel proj projection matrix mat linear params param c lin fc to dense net
""".split()
)
"""Parts of names that mark a weight matrix."""
FILLING = frozenset(
    """
    state states layer heads head tensor array arr all multi split vec vector vectors bhtd bthd bhld blhd btd btnh
    bshd bhsd bnsd mat projected new rot full ref block chunk embed hat np jnp in raw data seq input inputs the my
    and x 1 2 0 packed mixed fused tensors matrix matrices proj antecedent code feat features map maps
""".split()
)
"""Parts of names that do not say which array it is."""
WEIGHT_WORDS = ("w", "weight", "weights", "kernel", "kernels", "matrix")
BIAS_WORDS = ("b", "bias", "biases")
"""Words that distinguish a weight from its bias, as in `w_in` and `b_in`. The first word of each list is an initial."""
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
    if words & {"lens", "lengths", "seqlens"} and not words & NOT_KEY_LENGTHS:
        return "lengths"
    if not words & MASK_WORDS or words & NOT_MASKS:
        return ""
    if words & MASK_FILLS and parts[-1] not in MASK_WORDS:
        return ""
    return "padding" if words & {"pad", "padding", "key", "keys"} else "mask"


def find_role(parameter: inspect.Parameter) -> str:
    """Return the role of a parameter from its name and default; a boolean `scale=True` is a flag and has none."""
    role = role_of(parameter.name)
    if role == "scale" and is_switch(parameter):
        return ""
    # a causal mask as an array, such as `causal_mask=None`, rather than a flag
    is_array = "mask" in plain(parameter.name) and parameter.default is None and "bool" not in str(parameter.annotation)
    return "mask" if role == "causal" and is_array else role


def find_roles(parameters: Sequence[inspect.Parameter]) -> dict[str, str]:
    """Return the role of each parameter.

    A flag such as `do_mask=False` or `mask: bool` means causal if the function takes no mask array. If one array is
    named as a causal mask, any other mask is a padding mask.
    """
    mask_flags = [parameter.name for parameter in parameters if turns_masks_on(parameter)]
    roles = {parameter.name: find_role(parameter) for parameter in parameters} | dict.fromkeys(mask_flags, "")
    if not set(roles.values()) & {"mask", "padding", "causal", "lengths"}:
        roles |= dict.fromkeys(mask_flags, "causal")
    masks = {name for name, role in roles.items() if role == "mask"}
    causal_masks = {name for name in masks if role_of(name) == "causal"}
    return roles | dict.fromkeys(masks - causal_masks, "padding") if causal_masks else roles


def turns_masks_on(parameter: inspect.Parameter) -> bool:
    """Return whether a parameter is a flag that turns masks on, such as `use_mask=False`."""
    words = {*words_in(parameter.name)}
    return is_switch(parameter) and bool(words & {"mask", "masking", "masked"}) and words <= SWITCH_WORDS


def is_switch(parameter: inspect.Parameter) -> bool:
    return isinstance(parameter.default, bool) or parameter.annotation in (bool, "bool")


def parameters_of(function: Any, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a function, except masks that it never reads (see `find_unread_masks`).

    Raises:
        UserError: its parameters cannot be determined.
    """
    parameters = every_parameter(function, name)
    unread = find_unread_masks(function, parameters)
    return [parameter for parameter in parameters if parameter not in unread]


def names_of_unread_masks(function: Any) -> list[str]:
    return [parameter.name for parameter in find_unread_masks(function, every_parameter(function, ""))]


def every_parameter(function: Any, name: str) -> list[inspect.Parameter]:
    """Return the parameters of a function from its signature, TorchScript schema or docstring.

    Raises:
        UserError: its parameters cannot be determined.
    """
    schema = getattr(function, "schema", None)
    if type(function).__name__ in ("ScriptMethod", "ScriptFunction") and schema is not None:
        return parameters_of_schema(schema)
    try:
        parameters = list(inspect.signature(function).parameters.values())
        if all(map(is_starred, parameters)):  # `*args, **kwargs` alone say nothing
            return parameters_behind_stars(function) or parameters
    except (TypeError, ValueError):
        return parameters_in_docstring(function, name)
    return parameters


def parameters_in_docstring(function: Any, name: str) -> list[inspect.Parameter]:
    """Read the parameters from a signature in the docstring, which compiled functions often have.

    Raises:
        UserError: the docstring contains no parentheses, or prose in them.
    """
    docstring = getattr(function, "__doc__", None)
    signature = re.search(r"\(([^()]*(?:\([^()]*\)[^()]*)*)\)", docstring if isinstance(docstring, str) else "")
    parts = re.split(r",\s*", signature[1]) if signature else []
    texts = [text for text in parts if re.match(r"\w", text)]
    if signature is None or not all(re.fullmatch(r"\w+\s*(:.*)?(=.*)?", text, re.DOTALL) for text in texts):
        raise UserError(f"{name}: its parameters cannot be determined; wrap it in a function of q, k and v")
    return [parse_parameter(text) for text in texts]


def parse_parameter(text: str) -> inspect.Parameter:
    name_and_type, _, default = text.partition("=")
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    name = name_and_type.partition(":")[0].strip()
    return inspect.Parameter(name, kind, default=default.strip() if default else inspect.Parameter.empty)


def parameters_of_schema(schema: Any) -> list[inspect.Parameter]:
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    return [inspect.Parameter(argument.name, kind, annotation=str(argument.type), default=(
        argument.default_value if argument.has_default_value() else inspect.Parameter.empty
    )) for argument in schema.arguments if argument.name != "self"]  # fmt: skip


def parameters_behind_stars(function: Any) -> list[inspect.Parameter]:
    """Return the parameters of a class's `__init__`, or of the function in a `functools.partial`."""
    inner = vars(function).get("__init__") if inspect.isclass(function) else getattr(function, "func", None)
    if not callable(inner):
        return []
    bound = (None,) if inspect.isclass(function) else tuple(getattr(function, "args", ()))
    return list(inspect.signature(partial(inner, *bound, **getattr(function, "keywords", {}))).parameters.values())


def is_required(parameter: inspect.Parameter) -> bool:
    return parameter.default is parameter.empty and not is_starred(parameter)


def is_starred(parameter: inspect.Parameter) -> bool:
    return parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD)


def words_in(name: str) -> list[str]:
    """Return the words of a name in lowercase, without digits: `srcKeyMask_2` has three."""
    return [part for part in parts_of_name(name) if not part.isdigit()]


def plain(name: str) -> str:
    return name.replace("_", "").lower()


# Which of q, k, v, x or a matrix a name means, by its parts: `queries_BHTD`, `xq`, `key_layer`


def parts_of_name(name: str) -> list[str]:
    """Return the parts of a name in lowercase, digits included: `queryStates_BHTD` has three."""
    return [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]


def side_of_name(name: str) -> str:
    """Return what a name stands for: q, k, v, x, qkv, kv, or a matrix or bias such as W_q, W_qkv or b_q; else "".

    "W" is a matrix of unknown purpose. If the name is not in `ROLES`, exactly one of its parts must say which array it
    is, such as `queries` in `queries_BHTD`.
    """
    role = BY_NAME.get(plain(name), "")
    if role:
        return role if role in ("q", "k", "v", "x") or role[:2] in ("W_", "b_") else ""
    parts = parts_of_name(name)
    informative = "".join(part for part in parts if part not in FILLING)
    starts_with_w = len(informative) > 1 and informative[0] == "w"
    is_weight = starts_with_w or any(part in WEIGHT_PARTS for part in parts)
    distinctive = find_distinctive_parts(parts, starts_with_w)
    word = distinctive[0].rstrip("s") if len(distinctive) == 1 else ""
    side = next((side for side, words in ARRAY_PARTS.items() if word in {part.rstrip("s") for part in words}), "")
    if not is_weight:
        return side if side in ("q", "k", "v", "x", "qkv", "kv") else ""
    if not side:
        return "W"
    return f"W_{side}" if side in ("q", "k", "v", "o", "qkv", "kv") else ""


def find_distinctive_parts(parts: Sequence[str], starts_with_w: bool) -> list[str]:
    """Return the parts that say which array a name means; usually one, such as `q` of `c_attn_wq`."""
    distinctive = [part for part in parts if part not in FILLING and part not in WEIGHT_PARTS]
    if starts_with_w and len(distinctive) == 1:
        return [distinctive[0].removeprefix("w") or distinctive[0]]
    if not distinctive:  # parts that usually say nothing, such as `in` of `in_proj`
        return [part for part in parts if part in ("x", "in", "input", "inputs", "features", "proj", "out")][:1]
    if len(distinctive) > 1:
        distinctive = [part for part in distinctive if part not in ("src", "source", "tgt")]
    return ["kv"] if sorted(distinctive) == ["key", "value"] else distinctive


def biases_of(names: Sequence[str]) -> dict[str, str]:
    """Return the weight argument for each bias argument; their names differ by one word: `{"b_in": "w_in"}`."""
    weights = {remove_word(name, WEIGHT_WORDS): name for name in reversed(names)}
    stems = {name: remove_word(name, BIAS_WORDS) for name in names}
    return {name: weights[stem] for name, stem in stems.items() if stem is not None and stem in weights}


def remove_word(name: str, words: Sequence[str]) -> str | None:
    """Return a name without these words: "cattn" for `c_attn_w`; None if it has none of them.

    In short names such as `Wq` or `bqkv`, the initial `words[0]` is removed too: "q" and "qkv".
    """
    parts = parts_of_name(name)
    kept = [part for part in parts if part not in words]
    if len(kept) < len(parts):
        return "".join(kept)
    if name in parts or name.lower() in parts:
        return name.lower()[1:] if len(name) <= len("bqkv") and name[0].lower() == words[0] else None
    return None


# Mask parameters that a function takes but never reads: another parameter may be the real mask


def find_unread_masks(function: Any, parameters: Sequence[inspect.Parameter]) -> list[inspect.Parameter]:
    """Return the mask parameters that the code of a function never reads and that a call can omit.

    A parameter is returned only if the function reads another mask parameter, or takes this one by a convention of
    Keras or PyTorch. Otherwise it must be tested: a function that ignores its only mask is wrong. A parameter that is
    passed on to another function counts as read.
    """
    names = [parameter.name for parameter in parameters]
    mask_roles = {name: mask_role for name in names if (mask_role := role_of(name)) in ("mask", "padding", "causal")}
    names_unread = find_never_read(function, mask_roles) if mask_roles else set()
    read_roles = {role for name, role in mask_roles.items() if name not in names_unread}
    has_hint = "mask" in read_roles and any(parameter.name == "need_weights" for parameter in parameters)
    unread_masks = list[inspect.Parameter]()
    for parameter in parameters:
        role = mask_roles.get(parameter.name)
        if parameter.name not in names_unread or parameter.default is parameter.empty:
            continue
        if role == "causal":
            # an optimization hint of torch.nn.MultiheadAttention, which still requires the mask itself
            can_omit = parameter.name == "is_causal" and has_hint
        else:
            # Keras passes the mask of an embedding as `mask`; many layers accept it only for that reason
            by_convention = parameter.name == "mask" and is_keras_method(function)
            can_omit = by_convention or role in read_roles or (bool(read_roles) and role == "mask")
        unread_masks += [parameter] if can_omit else []
    return unread_masks


def find_never_read(function: Any, names: Collection[str]) -> set[str]:
    """Return the parameters among these names that the bytecode of a function never loads."""
    unwrapped = inspect.unwrap(getattr(function, "__func__", function)) if inspect.isroutine(function) else None
    code = getattr(unwrapped, "__code__", None)
    if code is None or "locals" in code.co_names:
        return set()
    return set(names).intersection(code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]) - find_loaded(code)


def find_loaded(code: CodeType) -> set[str]:
    loaded = set[str]()
    for inner in list_code_objects(code):
        for instruction in dis.get_instructions(inner):
            if instruction.opname.startswith("LOAD_") or "_LOAD_" in instruction.opname:
                # one instruction may load two names
                loaded |= (
                    set(instruction.argval) if isinstance(instruction.argval, tuple) else {str(instruction.argval)}
                )
    return loaded


def is_keras_method(function: Any) -> bool:
    kinds = type(getattr(function, "__self__", None)).__mro__
    return any(kind.__module__.partition(".")[0] in ("keras", "tf_keras", "tensorflow") for kind in kinds)


# The source of functions and classes, and their compiled code


def source_of(target: Any) -> str:
    """Return the source of a function or class, or of an object's class; an empty string if it has none."""
    return read_source(class_or_routine(target))


def source_with_helpers(target: Any, *, classes: bool = False) -> str:
    """Return the source of a function or class, and of the functions and base classes that it uses from its file.

    With `classes`, the source of all other classes that it uses from this file is included too.
    """
    return read_sources(class_or_routine(target), classes)


def class_or_routine(target: Any) -> Any:
    return target if inspect.isclass(target) or inspect.isroutine(target) else type(target)


@functools.lru_cache(maxsize=256)
def read_sources(target: Any, classes: bool) -> str:
    module_name = getattr(target, "__module__", None) or ""
    globals_of_file, sources = vars(sys.modules.get(module_name, inspect)), ""
    queue, visited = [target], list[Any]()
    while queue:
        current = queue.pop()
        if any(current is other for other in visited):
            continue
        visited.append(current)
        source = source_of(current)
        sources += source
        globals_used = (globals_of_file.get(word) for word in dict.fromkeys(re.findall(r"\w+", source)))
        queue += [other for other in globals_used if (inspect.isfunction(other) or (classes and inspect.isclass(other)))
                  and other.__module__ == module_name]  # fmt: skip
        queue += current.__bases__ if inspect.isclass(current) else ()
    return sources


@functools.lru_cache(maxsize=256)
def read_source(target: Any) -> str:
    """Return source code, cached because `inspect` parses the whole file for each class before Python 3.13."""
    try:
        return inspect.getsource(target)
    except (OSError, TypeError):
        return ""


def list_code_objects(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of the functions defined inside it."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            yield from list_code_objects(inner)
