"""Bind factories (functions that return a callable and example inputs), and draft one for targets that need it."""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.libraries import Library, library, library_of
from attn_exp.diagnosis.asking.names import (
    every_parameter,
    is_required,
    is_starred,
    side_of_name,
    source_of,
    source_with_helpers,
)
from attn_exp.diagnosis.bind.arguments import (
    ARRAYS,
    MASKS,
    ROTARY,
    Arguments,
    fill_of_mask,
    find_memory,
    read_arguments,
)
from attn_exp.diagnosis.bind.construct import call_text, run_foreign
from attn_exp.diagnosis.bind.layer import (
    METHODS,
    Layer,
    as_laid_out,
    has_parameters,
    kind_of,
    leave_out_norms,
    library_of_kind,
    owner_in,
    widths_of_weights,
)
from attn_exp.diagnosis.bind.sizes import Sizes, instead_of_default, sizes_of_layer, value_of
from attn_exp.errors import UncalledError, UserError
from attn_exp.own_code import OwnFunction

AXES: dict[str, dict[int, tuple[str, ...]]] = {
    "q": {4: ("bhtd",), 3: ("btd",), 2: ("td",)},
    "x": {4: ("bchw", "bhwc"), 3: ("btm", "bct"), 2: ("tm", "ct")},
}
"""The usual layouts by number of axes, for arrays of heads ("q") and for arrays of tokens or images ("x")."""
OPTIONS = ("layout", "mask", "weights", "heads")
FILLS: dict[str, float | bool] = {"attends": True, "hides": False, "added": 0.0}
"""What True may mean in a mask, or that it is added; the value of each that hides nothing."""


def is_factory(function: Any) -> bool:
    """Return whether a target is a factory: a plain function without required parameters."""
    if not inspect.isfunction(function) or "." in function.__qualname__.rpartition("<locals>.")[2]:
        return False
    return not any(is_required(one) or one.kind is one.VAR_POSITIONAL for one in every_parameter(function, ""))


def bind_factory(own: OwnFunction) -> Layer:
    """Call a factory and return the layer that it describes.

    The factory returns `(callable, inputs)` or `(callable, inputs, options)`. Inputs are arrays by role, or the
    callable's positional or keyword arguments, whose names then tell which are arrays; the rest stay fixed.

    Raises:
        UncalledError: the factory raised an error or returned something else, or its callable rejects the inputs.
    """
    made = run_foreign(own.function, f"{own.name}() raised an error")
    is_pair = isinstance(made, tuple) and len(made) in (2, 3) and callable(made[0])
    if not is_pair or not isinstance(made[1], Mapping | tuple | list) or not made[1]:
        raise UncalledError(f"{own.name}() must return (callable, inputs) or (callable, inputs, options)")
    target, given, options = (*made, {})[:3]
    parameters = signature_of(target)
    takes_any = any(one.kind is one.VAR_KEYWORD for one in parameters)
    if isinstance(given, Mapping) and takes_any and not set(given) & {one.name for one in parameters}:
        parameters = [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in given]
    arguments = find_memory(read_arguments(parameters), source_of(getattr(target, "forward", target)))
    if isinstance(given, Mapping) and set(given) <= set(ARRAYS):
        inputs, kept, masks = given, dict[str, Any](), dict[str, Any]()
    else:
        told = mask_option(own, options.get("mask"))
        inputs, kept, masks = split_inputs(own, target, arguments, given, told)
    wrong = [*(f"input `{one}`" for one in set(inputs) - set(ARRAYS)),
             *(f"option `{one}`" for one in set(options) - set(OPTIONS))]  # fmt: skip
    if wrong:
        raise UncalledError(f"{own.name}() returned {wrong[0]}; inputs are {', '.join(ARRAYS)}; "
                            f"options are {', '.join(OPTIONS)}")  # fmt: skip
    owner = owner_in(target)
    hidden = {arguments.keywords.get(role) for role in MASKS}
    projects = has_parameters(owner) or any(
        getattr(one, "ndim", 0) == len("mn") for name, one in kept.items() if name not in hidden
    )
    if kind_of(owner) == "torch":
        leave_out_norms(owner)
    lengths = {one.shape[-1] for one in (*kept.values(), *masks.values())
               if len(getattr(one, "shape", ())) > 1 and one.shape[-1] == one.shape[-2]}  # fmt: skip
    axes = axes_of_inputs(own, inputs, options, (widths_of_weights(owner), lengths), projects=projects)
    try:
        return layer_of_factory(own, (target, owner, arguments, kept), inputs, axes, options)
    except UncalledError:
        if not masks:
            raise
        return layer_of_factory(own, (target, owner, arguments, {**kept, **masks}), inputs, axes, options)


def signature_of(target: Any) -> list[inspect.Parameter]:
    inner = getattr(target, "call" if kind_of(target) == "keras" else "forward", target)
    try:
        return every_parameter(inner, "")
    except UserError:
        return []


def split_inputs(
    own: OwnFunction, target: Any, arguments: Arguments, given: Sequence[Any] | Mapping[str, Any], told: tuple[str, str]
) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Split arguments into arrays by role, other values by name, and optional masks by name.

    The masks are replaced with masks that hide nothing, because each test case passes its own.

    Raises:
        UncalledError: the signature does not tell which arguments are the arrays.
    """
    names = {**arguments.keywords, **arguments.arrays}
    pairs = given.items() if isinstance(given, Mapping) else zip(arguments.parameters, given, strict=False)
    values = {name if name in arguments.parameters else names.get(name, name): value for name, value in pairs}
    roles = {name: role for role, name in names.items()}
    inputs = {roles[name]: value for name, value in values.items()
              if roles.get(name) in ARRAYS and len(getattr(value, "shape", ())) > 1}  # fmt: skip
    if not inputs:
        raise UncalledError(f"{own.name}() returned {', '.join(values) or 'arrays'}: no name identifies the input; "
                            f"return a dictionary by role: {', '.join(ARRAYS)}")  # fmt: skip
    source = source_with_helpers(getattr(target, "forward", target), classes=True)
    fills = {told[0]: FILLS[told[1]]} if told[1] else {}
    kept = {name: make_open_mask(value, fills.get(name, fill_of_mask(name, source)))
            if roles.get(name) in MASKS else value
            for name, value in values.items() if roles.get(name) not in inputs}  # fmt: skip
    masks = {name: kept.pop(name) for name in list(kept)
             if roles.get(name) in MASKS and roles[name] not in arguments.required}  # fmt: skip
    return inputs, kept, masks


def make_open_mask(mask: Any, fill: float | bool) -> Any:
    if not hasattr(mask, "dtype"):
        return mask
    kind = str(mask.dtype)
    if "bool" in kind:
        return mask == mask if fill else mask != mask  # noqa: PLR0124 - all True or all False, in any library
    return mask.clip(0, 0) + (0 if "float" in kind and float(mask.min()) < -100 else float(fill))


def axes_of_inputs(
    own: OwnFunction, inputs: Mapping[str, Any], options: Mapping[str, Any],
    sizes: tuple[Sequence[int], Collection[int]], *, projects: bool,
) -> dict[str, str]:  # fmt: skip
    """Return the layout of each input: `options["layout"]` (one string, or one per role), or the usual one.

    `projects` means that the callable has weight matrices, so q, k and v with three axes are arrays of tokens.
    `sizes` are the widths of the matrices, which identify the channel axis, and the numbers of tokens of square masks,
    which identify the token axis.

    Raises:
        UncalledError: a layout and its array have different numbers of axes.
    """
    layout = options.get("layout", "")
    holds_heads = options.get("heads", 1) > 1 and all(len(one.shape) == len("btm") for one in inputs.values())
    usual = AXES["q" if {"q", "k", "v"} <= inputs.keys() and not projects and not holds_heads else "x"]
    if not projects and {"q", "k"} <= inputs.keys() and len(inputs["q"].shape) == len(inputs["k"].shape) == len("bhtd"):
        usual = usual | ({4: ("bthd",)} if inputs["q"].shape[1] % inputs["k"].shape[1] else {})  # axis 1 is not h
    told = {role: layout.get(role, "") if isinstance(layout, Mapping) else layout for role in inputs}
    axes = {role: re.sub(r"[^a-z]", "", told[role]) or likeliest_layout(inputs[role].shape, usual, *sizes)
            for role in inputs}  # fmt: skip
    wrong = [role for role, letters in axes.items() if len(letters) != inputs[role].ndim]
    if wrong:
        raise UncalledError(f"{own.name}(): layout {axes[wrong[0]]!r} does not fit `{wrong[0]}`, "
                            f"which has {inputs[wrong[0]].ndim} axes")  # fmt: skip
    counts = [array.shape[axes[role].index("t")] for role, array in inputs.items() if "t" in axes[role]]
    if len(set(counts)) > 1:
        axes = {role: letters if role in "qx" else letters.replace("t", "s") for role, letters in axes.items()}
    return axes


def likeliest_layout(
    shape: Sequence[int], usual: Mapping[int, Sequence[str]], widths: Sequence[int], lengths: Collection[int]
) -> str:
    several = usual.get(len(shape), [""])
    if "btm" in several and shape[0] in lengths and shape[1] not in lengths:
        return "tbm"
    fits = [one for one in several if any(shape[one.find(letter)] in widths for letter in "mc" if letter in one)]
    is_square = "bhwc" in several and shape[1] == shape[2]
    return next(iter(fits), "bhwc" if is_square else several[0])


def layer_of_factory(
    own: OwnFunction, made: tuple[Any, Any, Arguments, Mapping[str, Any]], inputs: Mapping[str, Any],
    axes: dict[str, str], options: Mapping[str, Any],
) -> Layer:  # fmt: skip
    """Call a factory's callable once and return its layer; `made` is (callable, owner, arguments, fixed values).

    Raises:
        UncalledError: the call raised an error.
    """
    target, owner, arguments, kept = made
    first = next(iter(inputs.values()))
    of_target = library_of_kind(kind_of(target), target) if kind_of(target) != "plain" else ""
    name, dtype = of_target or library_of(first), str(first.dtype).removeprefix("torch.")
    forms = library(name)
    by_name = kept or all(role in arguments.arrays for role in inputs)
    keyword, polarity = mask_option(own, options.get("mask"))
    roles = {word: role for role, word in arguments.keywords.items() if role in MASKS and role != "memory_mask"}
    names = {**arguments.keywords, **({roles.get(keyword, "mask"): keyword} if keyword else {}), **arguments.arrays}

    def call(arrays: Mapping[str, Any], keywords: Mapping[str, Any]) -> Any:
        others = {role: convert(forms.back(value)) if is_of_other_type(value) else value
                  for role, value in keywords.items()}  # fmt: skip
        said = {names.get(role, role): value for role, value in {**others, **(arrays if by_name else {})}.items()}
        return target(*([] if by_name else arrays.values()), **{**kept, **said})

    def is_of_other_type(value: Any) -> bool:
        return "float" in str(getattr(value, "dtype", "")) and not str(value.dtype).endswith(dtype)

    def convert(array: Array) -> Any:
        return forms.into(np.asarray(array), dtype)

    first_call = {role: convert(np.asarray(one)) if of_target and library_of(one) != name else one
                  for role, one in inputs.items()}  # fmt: skip
    said = run_foreign(lambda: call(first_call, {}), f"the callable from {own.name}() could not be called")
    laid_out = as_laid_out(call, said, next(iter(axes.values())), tuple(first.shape))
    found = {(role, letter): int(size)
             for role in inputs for letter, size in zip(axes[role], inputs[role].shape, strict=True)}  # fmt: skip
    lengths = {letter: size for (_, letter), size in found.items()}
    lengths |= {"t": lengths["h"] * lengths["w"]} if "w" in lengths else {}
    keys = [found[role, "h"] for role in "kv" if (role, "h") in found]
    known = sizes_of_layer(owner, {})
    heads = options.get("heads") or found.get(("q", "h")) or known.get("h")
    sizes = {"m": lengths.get("m") or lengths.get("c"), "h": heads, "g": [*keys, known.get("g"), heads][0],
             "d": lengths.get("d") or known.get("d")}  # fmt: skip
    keywords = {role: word for role, word in names.items() if role not in inputs and word not in kept}
    masks = {role: word for role, word in names.items() if role in MASKS and role not in inputs}
    columns = [word for word, value in kept.items() if tuple(getattr(value, "shape", ()))[-1:] == (1,)]
    keywords |= {role: word for role, word in masks.items() if word not in kept or kept[word] is not None}
    aside = {word for role, word in names.items() if role in (*MASKS, *ROTARY)}
    fixed = tuple(name for name, value in kept.items() if getattr(value, "ndim", 0) > 1 and name not in aside
                  and not side_of_name(name).startswith("W"))  # fmt: skip
    unasked = [word for word in masks.values() if word not in keywords.values() or word in columns]
    unset = [word for word in arguments.unknown if word not in arguments.fixed]
    told = options.get("weights") or {}
    shapes = [getattr(one, "shape", ()) for value in kept.values()
              for one in (value if isinstance(value, tuple | list) else [value])]  # fmt: skip
    counts = [value for word, value in kept.items() if type(value) is int and re.search("len|seq|tokens", word)]
    return Layer(
        own.name, name, owner, axes, {letter: int(size) for letter, size in sizes.items() if size}, laid_out, convert,
        keywords, arguments.defaults, made=f"{own.name}()", unknown=(*unset, *unasked), mask_true=polarity,
        lengths={one: lengths[one] for one in lengths if one in "btsw" or (one == "h" and "w" in lengths)},
        weights={side: forms.back(one) for side, one in told.items()} or find_weights(kept, forms),
        fixed=fixed, widths={role: size for (role, letter), size in found.items() if letter in "mc"},
        axes_told="layout" in options or (bool(heads) and options.get("heads") == lengths.get("h") != lengths.get("t")),
        is_fixed="w" in lengths or any(lengths.get("t") in shape for shape in shapes) or lengths.get("t") in counts,
    )  # fmt: skip


def find_weights(kept: Mapping[str, Any], forms: Library) -> dict[str, Array]:
    sides = {name: side_of_name(name) for name in kept}
    several = {side: kept[name] if isinstance(kept[name], list | tuple) else [kept[name]]
               for name, side in sides.items() if side in ("W_q", "W_k", "W_v", "W_o")}  # fmt: skip
    arrays = {side: [forms.back(one) for one in value] for side, value in several.items()}
    are_matrices = arrays and all(one.ndim == len("mn") for value in arrays.values() for one in value)
    return {side: np.concatenate(value, axis=-1) for side, value in arrays.items()} if are_matrices else {}


def mask_option(own: OwnFunction, told: Any) -> tuple[str, str]:
    """Return the mask keyword and the mask polarity from the option `mask`.

    The option is `"attn_mask"`, `("attn_mask", "hides")`, or `{"keyword": "attn_mask", "true": "hides"}`.

    Raises:
        UncalledError: the polarity is not `attends`, `hides` (the meaning of True) or `added`.
    """
    told = (told.get("keyword") or "", told.get("true", "")) if isinstance(told, Mapping) else told
    keyword, polarity = (told or "", "") if told is None or isinstance(told, str) else told
    if polarity not in ("", *FILLS):
        raise UncalledError(f"{own.name}(): mask polarity {polarity!r}; expected one of {', '.join(FILLS)}")
    return str(keyword), str(polarity)


# The draft


EXAMPLES = {
    "torch": ("import torch", "torch.randn({shape}, dtype=torch.float64)"),
    "jax": ("import jax", "jax.random.normal(jax.random.PRNGKey({seed}), ({shape}))"),
    "numpy": ("import numpy as np", "np.random.default_rng({seed}).standard_normal(({shape}))"),
}


def describe_factory(own: OwnFunction, layer_error: str) -> str:
    """Return the draft of a factory: imports, constructor and call as far as known, with `...` for the rest.

    Args:
        own: the target that could not be bound.
        layer_error: the reason, in one line.
    """
    owner, kind = own.function, kind_of(own.function)
    library_name = library_of_kind(kind, owner)
    module = Path(own.file).stem if own.file else getattr(owner, "__module__", "...")
    called = [one for one in METHODS if one != "__call__"] if kind in ("torch", "keras") else ["__call__", *METHODS]
    methods = (getattr(owner, name, None) for name in called)
    method = next((one for one in methods if inspect.isfunction(one) or inspect.ismethod(one)), None)
    is_function = inspect.isroutine(owner)
    method = owner if is_function else method
    parameters = [one for one in every_parameter(method, "") if one.name != "self"] if method else []
    arrays = read_arguments(parameters).arrays or {"x": "x"}
    needed = [one.name for one in parameters if is_required(one) and one.name not in arrays.values()]
    given = ", ".join([*(f"{name}={role}" for role, name in arrays.items()), *(f"{name}=..." for name in needed)])
    lines = [f"layer = target{format_draft_arguments(owner) if inspect.isclass(owner) else ''}"]
    lines += ["layer = layer.double().eval()"] if kind == "torch" else []
    imports, key = EXAMPLES[library_name][0], ""
    if kind == "haiku":
        lines = [f"layer = hk.transform(lambda {', '.join(arrays)}: {lines[0].partition(' = ')[2]}({given}))"]
        imports, key, given = f"import haiku as hk\n{imports}", "jax.random.PRNGKey(0), ", ", ".join(arrays)
    for seed, role in enumerate(arrays):
        rows = (5, "t") if role in "qx" else (7, "s")
        of_heads = is_function and role in "qkv"
        shape, axes = (f"2, 4, {rows[0]}, 6", "b h {} d") if of_heads else (f"2, {rows[0]}, 24", "b {} m")
        lines.append(f"{role} = {EXAMPLES[library_name][1].format(shape=shape, seed=seed)}  # [{axes.format(rows[1])}]")
    applied = f"layer({given})"
    if kind in ("linen", "haiku"):
        lines.append(f"variables = layer.init(jax.random.PRNGKey(0), {given})")
        applied = f"layer.apply(variables, {key}{given})"
    return f'''# {layer_error}
import importlib
{imports}


def make():
    target = importlib.import_module("{module}").{own.name}
    {NEXT_LINE.join(lines)}

    def call({", ".join(arrays)}):
        return {applied}

    return call, {{{", ".join(f'"{role}": {role}' for role in arrays)}}}, {{"heads": 4}}


# Save this as factory.py next to {Path(own.file).name or module}, replace each `...`, and run:
# attn-exp check factory.py:make
'''


NEXT_LINE = "\n    "


def format_draft_arguments(owner: Any) -> str:
    parameters = [one for one in every_parameter(owner, owner.__name__) if not is_starred(one)]
    names, sizes = [one.name for one in parameters], Sizes(4, 6, 24, 4)
    chosen = {one.name: value_of(one.name, sizes, names) if is_required(one) else instead_of_default(one, sizes, names)
              for one in parameters}  # fmt: skip
    shown = {one.name: chosen[one.name] for one in parameters if is_required(one) or chosen[one.name] is not ...}
    return call_text("", shown).replace("ellipsis(...)", "...")
