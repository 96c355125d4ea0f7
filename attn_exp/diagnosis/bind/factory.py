"""Bind factories (functions that return a callable and example inputs), and draft a factory for a target.

    def make():
        return layer, {"x": torch.randn(2, 5, 24)}, {"heads": 4}

`bind_factory` calls the factory, sorts what it returned into inputs, fixed values and masks (`split_inputs`), finds the
layouts (`find_input_axes`), and calls the callable once (`make_layer`). `describe_factory` writes the draft.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Collection, Mapping, Sequence
from functools import reduce
from operator import or_
from pathlib import Path
from typing import Any

import numpy as np

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.libraries import Library, library_of, load_library
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
    OFFSET,
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
    has_parameters,
    keep_layout,
    kind_of,
    leave_out_norms,
    library_of_kind,
    owner_in,
    widths_of_weights,
)
from attn_exp.diagnosis.bind.sizes import Sizes, replace_default, sizes_of_layer, value_of
from attn_exp.errors import UncalledError, UserError
from attn_exp.own_code import OwnFunction

AXES: dict[str, dict[int, tuple[str, ...]]] = {
    "q": {4: ("bhtd",), 3: ("btd",), 2: ("td",)},
    "x": {4: ("bchw", "bhwc"), 3: ("btm", "bct"), 2: ("tm", "ct")},
}
"""The usual layouts by number of axes, for arrays of heads ("q") and for arrays of tokens or images ("x")."""
OPTIONS = ("layout", "mask", "weights", "heads")
"""The keys of the options that a factory may return."""
FILLS: dict[str, float | bool] = {"attends": True, "hides": False, "added": 0.0}
"""The meanings of True in a mask ("added": the mask is additive), each with the mask value that hides nothing."""
EXAMPLES = {
    "torch": ("import torch", "torch.randn({shape}, dtype=torch.float64)"),
    "jax": ("import jax", "jax.random.normal(jax.random.PRNGKey({seed}), ({shape}))"),
    "numpy": ("import numpy as np", "np.random.default_rng({seed}).standard_normal(({shape}))"),
}
"""The import of each library and a random array, for the draft."""


def is_factory(function: Any) -> bool:
    """Return whether a target is a factory: a plain function without required parameters."""
    if not inspect.isfunction(function) or "." in function.__qualname__.rpartition("<locals>.")[2]:
        return False
    return not any(
        is_required(parameter) or parameter.kind is parameter.VAR_POSITIONAL
        for parameter in every_parameter(function, "")
    )


def bind_factory(factory: OwnFunction) -> Layer:
    """Call a factory and return the layer that it describes.

    The factory returns `(callable, inputs)` or `(callable, inputs, options)`. The inputs are either arrays by role, or
    the callable's positional or keyword arguments. In the second case, the names of its parameters tell which arguments
    are the arrays; all others keep their values.

    Raises:
        UncalledError: the factory raised an error or returned something else, or its callable rejects the inputs.
    """
    returned = run_foreign(factory.function, f"{factory.name}() raised an error")
    is_pair = isinstance(returned, tuple) and len(returned) in (2, 3) and callable(returned[0])
    if not is_pair or not isinstance(returned[1], Mapping | tuple | list) or not returned[1]:
        raise UncalledError(f"{factory.name}() must return (callable, inputs) or (callable, inputs, options)")
    function, given, options = (*returned, {})[:3]
    arguments = find_memory(
        read_arguments(list_parameters(function, given)), source_of(getattr(function, "forward", function))
    )
    inputs, fixed, masks = split_inputs(factory, function, arguments, given, options)
    wrong = [*(f"input `{role}`" for role in set(inputs) - set(ARRAYS)),
             *(f"option `{name}`" for name in set(options) - set(OPTIONS))]  # fmt: skip
    if wrong:
        raise UncalledError(f"{factory.name}() returned {wrong[0]}; inputs are {', '.join(ARRAYS)}; "
                            f"options are {', '.join(OPTIONS)}")  # fmt: skip
    owner = owner_in(function)
    if kind_of(owner) == "torch":
        leave_out_norms(owner)
    # a fixed value with two axes is a weight matrix, unless it is a mask
    mask_names = {arguments.keywords.get(role) for role in MASKS}
    matrices = [name for name, value in fixed.items() if getattr(value, "ndim", 0) == 2 and name not in mask_names]
    # square arrays, such as masks, show the number of tokens
    lengths = {value.shape[-1] for value in (*fixed.values(), *masks.values())
               if len(getattr(value, "shape", ())) > 1 and value.shape[-1] == value.shape[-2] > 2}  # fmt: skip
    axes = find_input_axes(
        factory, inputs, options, widths_of_weights(owner), lengths, projects=bool(matrices) or has_parameters(owner)
    )
    try:
        return make_layer(factory, function, arguments, fixed, inputs, axes, options)
    except UncalledError:
        if not masks:
            raise
        return make_layer(factory, function, arguments, fixed | masks, inputs, axes, options)


def list_parameters(function: Any, given: Sequence[Any] | Mapping[str, Any]) -> list[inspect.Parameter]:
    """Return the parameters of a callable, none if they are unknown; for `**kwargs`, one for each name in `given`."""
    inner = getattr(function, "call" if kind_of(function) == "keras" else "forward", function)
    try:
        parameters = every_parameter(inner, "")
    except UserError:
        return []
    takes_any = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters)
    if isinstance(given, Mapping) and takes_any and not set(given) & {parameter.name for parameter in parameters}:
        return [inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY) for name in given]
    return parameters


def split_inputs(
    factory: OwnFunction, function: Any, arguments: Arguments, given: Sequence[Any] | Mapping[str, Any],
    options: Mapping[str, Any],
) -> tuple[Mapping[str, Any], dict[str, Any], dict[str, Any]]:  # fmt: skip
    """Split arguments into input arrays by role, fixed values by name, and optional masks by name.

    All masks are replaced with masks that hide nothing, because each test case passes its own.

    Raises:
        UncalledError: the signature does not tell which arguments are the arrays.
    """
    if isinstance(given, Mapping) and set(given) <= set(ARRAYS):
        return given, {}, {}
    keyword, polarity = read_mask_option(factory, options.get("mask"))
    names = {**arguments.keywords, **arguments.arrays}
    roles = {name: role for role, name in names.items()}
    pairs = given.items() if isinstance(given, Mapping) else zip(arguments.parameters, given, strict=False)
    values = {name if name in arguments.parameters else names.get(name, name): value for name, value in pairs}
    inputs = {roles[name]: value for name, value in values.items()
              if roles.get(name) in ARRAYS and len(getattr(value, "shape", ())) > 1}  # fmt: skip
    if not inputs:
        raise UncalledError(f"{factory.name}() returned {', '.join(values) or 'arrays'}: no name identifies the input; "
                            f"return a dictionary by role: {', '.join(ARRAYS)}")  # fmt: skip
    source = source_with_helpers(getattr(function, "forward", function), classes=True)
    fills = {keyword: FILLS[polarity]} if polarity else {}
    fixed = {name: make_neutral_mask(value, fills.get(name, fill_of_mask(name, source)))
             if roles.get(name) in MASKS else value
             for name, value in values.items() if roles.get(name) not in inputs}  # fmt: skip
    masks = {name: fixed.pop(name) for name in list(fixed)
             if roles.get(name) in MASKS and roles[name] not in arguments.required}  # fmt: skip
    return inputs, fixed, masks


def make_neutral_mask(mask: Any, fill: float | bool) -> Any:
    """Return a mask of the same shape and dtype that hides nothing; `fill` is the value that hides nothing."""
    if not hasattr(mask, "dtype"):
        return mask
    dtype = str(mask.dtype)
    if "bool" in dtype:
        return mask == mask if fill else mask != mask  # noqa: PLR0124 - all True or all False, in any library
    return mask.clip(0, 0) + (0 if "float" in dtype and float(mask.min()) < -100 else float(fill))  # additive: -inf


def find_input_axes(
    factory: OwnFunction, inputs: Mapping[str, Any], options: Mapping[str, Any], widths: Sequence[int],
    lengths: Collection[int], *, projects: bool,
) -> dict[str, str]:  # fmt: skip
    """Return the layout of each input: `options["layout"]` (one string, or one per role), or the usual one.

    Args:
        factory: named in the error message.
        inputs: the arrays by role.
        options: what the factory returned as options.
        widths: the widths of the weight matrices; an axis of this length contains the channels.
        lengths: the sizes of square masks; an axis of this length contains the tokens.
        projects: whether the callable has weight matrices; q, k and v are then arrays of tokens, not of heads.

    Raises:
        UncalledError: a layout and its array have different numbers of axes.
    """
    layout = options.get("layout", "")
    usual = list_usual_layouts(inputs, options.get("heads", 1), projects)
    axes = dict[str, str]()
    for role, array in inputs.items():
        written = layout.get(role, "") if isinstance(layout, Mapping) else layout
        axes[role] = re.sub(r"[^a-z]", "", written) or choose_layout(array.shape, usual, widths, lengths)
        if len(axes[role]) != array.ndim:
            raise UncalledError(f"{factory.name}(): layout {axes[role]!r} does not fit `{role}`, "
                                f"which has {array.ndim} axes")  # fmt: skip
    counts = {array.shape[axes[role].index("t")] for role, array in inputs.items() if "t" in axes[role]}
    if len(counts) > 1:  # there are more or fewer keys than queries
        return {role: letters if role in "qx" else letters.replace("t", "s") for role, letters in axes.items()}
    return axes


def list_usual_layouts(inputs: Mapping[str, Any], heads: int, projects: bool) -> Mapping[int, Sequence[str]]:
    """Return the usual layouts of these inputs by number of axes."""
    if projects or not {"q", "k"} <= inputs.keys():
        return AXES["x"]
    has_merged_heads = heads > 1 and all(len(array.shape) == 3 for array in inputs.values())
    q, k = inputs["q"].shape, inputs["k"].shape
    usual = AXES["q" if "v" in inputs and not has_merged_heads else "x"]
    is_bthd = len(q) == len(k) == 4 and q[1] % k[1]  # axis 1 is not the heads
    return usual | ({4: ("bthd",)} if is_bthd else {})


def choose_layout(
    shape: Sequence[int], usual: Mapping[int, Sequence[str]], widths: Sequence[int], lengths: Collection[int]
) -> str:
    """Return the usual layout whose token axis or channel axis has a known length, or else the first."""
    layouts = usual.get(len(shape), [""])
    if "btm" in layouts and shape[0] in lengths and shape[1] not in lengths:
        return "tbm"
    fitting = [
        layout for layout in layouts if any(shape[layout.find(letter)] in widths for letter in "mc" if letter in layout)
    ]
    return next(iter(fitting), "bhwc" if "bhwc" in layouts and shape[1] == shape[2] else layouts[0])


def make_layer(
    factory: OwnFunction, function: Any, arguments: Arguments, fixed: Mapping[str, Any], inputs: Mapping[str, Any],
    axes: dict[str, str], options: Mapping[str, Any],
) -> Layer:  # fmt: skip
    """Call a factory's callable once and return its layer.

    Raises:
        UncalledError: the call raised an error.
    """
    owner = owner_in(function)
    first_input = next(iter(inputs.values()))
    layer_library = library_of_kind(kind_of(function), function) if kind_of(function) != "plain" else ""
    library_name = layer_library or library_of(first_input)
    dtype = str(first_input.dtype).removeprefix("torch.")
    backend = load_library(library_name)
    passes_names = fixed or all(role in arguments.arrays for role in inputs)
    keyword, polarity = read_mask_option(factory, options.get("mask"))
    mask_roles = {name: role for role, name in arguments.keywords.items() if role in MASKS and role != "memory_mask"}
    named_mask = {mask_roles.get(keyword, "mask"): keyword} if keyword else {}
    names = {**arguments.keywords, **named_mask, **arguments.arrays}

    def convert(array: Array) -> Any:
        return backend.into(np.asarray(array), dtype)

    def match_dtype(value: Any) -> Any:
        is_other_float = re.search("float", str(getattr(value, "dtype", ""))) and not str(value.dtype).endswith(dtype)
        return convert(backend.back(value)) if is_other_float else value

    def call(arrays: Mapping[str, Any], keywords: Mapping[str, Any]) -> Any:
        by_role = {role: match_dtype(value) for role, value in keywords.items()}
        start = by_role.pop(OFFSET, None)
        tables = {} if start is None else {
            name: cut_table(fixed[name], lengths["t"], start, arrays["x"].shape[axes["x"].index("t")])
            for role, name in names.items() if role in ROTARY and name in fixed
        }  # fmt: skip
        by_role |= arrays if passes_names else {}
        by_name = {names.get(role, role): value for role, value in by_role.items()}
        return function(*([] if passes_names else arrays.values()), **{**fixed, **tables, **by_name})

    example = {role: convert(np.asarray(array)) if layer_library and library_of(array) != library_name else array
               for role, array in inputs.items()}  # fmt: skip
    output = run_foreign(lambda: call(example, {}), f"the callable from {factory.name}() could not be called")
    axis_sizes = {role: dict(zip(axes[role], map(int, array.shape), strict=True)) for role, array in inputs.items()}
    lengths = reduce(or_, axis_sizes.values(), dict[str, int]())
    lengths |= {"t": lengths["h"] * lengths["w"]} if "w" in lengths else {}
    sizes = find_sizes(owner, axis_sizes, lengths, options.get("heads"))
    masks = {role: name for role, name in names.items() if role in MASKS and role not in inputs}
    keywords = {role: name for role, name in names.items() if role not in inputs and name not in fixed}
    keywords |= {role: name for role, name in masks.items() if fixed.get(name, ...) is not None}
    # a mask that is a column, or that the factory sets to None, counts as unknown
    columns = [name for name, value in fixed.items() if tuple(getattr(value, "shape", ()))[-1:] == (1,)]
    unknown = [name for name in arguments.unknown if name not in arguments.fixed]
    unknown += [name for name in masks.values() if name not in keywords.values() or name in columns]
    # an image, or a fixed value as long as the input, fixes the number of tokens
    tokens = lengths.get("t")
    parts = [part for value in fixed.values() for part in (value if isinstance(value, tuple | list) else [value])]
    counts = [value for name, value in fixed.items() if type(value) is int and re.search("len|seq|tokens", name)]
    known_arrays = {name for role, name in names.items() if role in (*MASKS, *ROTARY)}
    other_arrays = [name for name, value in fixed.items() if getattr(value, "ndim", 0) > 1 and name not in known_arrays
                    and not side_of_name(name).startswith("W")]  # fmt: skip
    return Layer(
        factory.name, library_name, owner, axes, sizes,
        keep_layout(call, output, next(iter(axes.values())), tuple(first_input.shape)), convert, keywords,
        arguments.defaults,
        constructor_call=f"{factory.name}()", unknown=tuple(unknown), fixed=tuple(other_arrays), mask_true=polarity,
        lengths={letter: size for letter, size in lengths.items() if letter in ("bhtsw" if "w" in lengths else "bts")},
        weights={side: backend.back(matrix) for side, matrix in (options.get("weights") or {}).items()}
        or find_weights(fixed, backend),
        is_fixed="w" in lengths or tokens in counts or any(tokens in getattr(part, "shape", ()) for part in parts),
        widths={role: found[letter] for role, found in axis_sizes.items() for letter in "mc" if letter in found},
        axes_told="layout" in options or ("h" in sizes and options.get("heads") == lengths.get("h") != tokens),
    )  # fmt: skip


def cut_table(table: Any, tokens: int, start: int, count: int) -> Any:
    """Return `count` rows of a rotary table from row `start` on; a table of more tokens than `tokens` stays whole."""
    if isinstance(table, tuple | list):
        return tuple(cut_table(part, tokens, start, count) for part in table)
    rows = slice(start, start + count)
    return table[tuple(rows if size == tokens else slice(None) for size in table.shape)]


def find_sizes(
    owner: Any, axis_sizes: Mapping[str, Mapping[str, int]], lengths: Mapping[str, int], heads: int | None
) -> dict[str, int]:  # fmt: skip
    """Return the sizes of a layer from the option `heads` and the inputs, or else from its attributes.

    `axis_sizes` contains the shapes of the inputs by role and letter, `lengths` the same sizes by letter only.
    """
    known = sizes_of_layer(owner, {})
    groups = [axis_sizes[role]["h"] for role in ("k", "v") if "h" in axis_sizes.get(role, {})]
    sizes = {
        "m": lengths.get("m") or lengths.get("c"), "h": heads or axis_sizes.get("q", {}).get("h") or known.get("h"),
        "g": groups[0] if groups else known.get("g"), "d": lengths.get("d") or known.get("d"),
    }  # fmt: skip
    return {letter: int(size) for letter, size in sizes.items() if size}


def find_weights(fixed: Mapping[str, Any], backend: Library) -> dict[str, Array]:
    """Return the weight matrices among fixed values, by role; matrices of single heads are concatenated."""
    names = {side_of_name(name): name for name in fixed}
    values = {side: fixed[names[side]] for side in ("W_q", "W_k", "W_v", "W_o") if side in names}
    heads = {side: [backend.back(matrix) for matrix in (value if isinstance(value, list | tuple) else [value])]
             for side, value in values.items()}  # fmt: skip
    are_matrices = all(matrix.ndim == 2 for matrices in heads.values() for matrix in matrices)
    return {side: np.concatenate(matrices, axis=-1) for side, matrices in heads.items()} if are_matrices else {}


def read_mask_option(factory: OwnFunction, option: Any) -> tuple[str, str]:
    """Return the mask keyword and the mask polarity from the option `mask`.

    The option is `"attn_mask"`, `("attn_mask", "hides")`, or `{"keyword": "attn_mask", "true": "hides"}`. The polarity
    is `attends` or `hides` (the meaning of True) or `added`.
    """
    option = (option.get("keyword") or "", option.get("true", "")) if isinstance(option, Mapping) else option
    keyword, polarity = (option or "", "") if option is None or isinstance(option, str) else option
    if polarity not in ("", *FILLS):
        raise UncalledError(f"{factory.name}(): mask polarity {polarity!r}; expected one of {', '.join(FILLS)}")
    return str(keyword), str(polarity)


# The draft


def describe_factory(target: OwnFunction, layer_error: str) -> str:
    """Return the draft of a factory: imports, constructor and call as far as known, with `...` for the rest.

    Args:
        target: the target that could not be bound.
        layer_error: the reason, in one line.
    """
    owner, kind = target.function, kind_of(target.function)
    module = Path(target.file).stem if target.file else getattr(owner, "__module__", "...")
    method = owner if inspect.isroutine(owner) else find_method(owner, kind)
    parameters = [parameter for parameter in every_parameter(method, "") if parameter.name != "self"] if method else []
    arrays = read_arguments(parameters).arrays or {"x": "x"}
    given = ", ".join(
        [
            *(f"{name}={role}" for role, name in arrays.items()),
            *(
                f"{parameter.name}=..."
                for parameter in parameters
                if is_required(parameter) and parameter.name not in arrays.values()
            ),
        ]
    )
    constructor = f"target{draft_arguments(owner) if inspect.isclass(owner) else ''}"
    imports, random_array = EXAMPLES[library_of_kind(kind, owner)]
    lines = [f"layer = {constructor}", *(["layer = layer.double().eval()"] if kind == "torch" else [])]
    key = ""
    if kind == "haiku":  # a module exists only inside hk.transform
        lines = [f"layer = hk.transform(lambda {', '.join(arrays)}: {constructor}({given}))"]
        imports, key, given = f"import haiku as hk\n{imports}", "jax.random.PRNGKey(0), ", ", ".join(arrays)
    for seed, role in enumerate(arrays):
        length, letter = (5, "t") if role in "qx" else (7, "s")
        has_heads = inspect.isroutine(owner) and role in "qkv"
        shape, axes = (f"2, 4, {length}, 6", f"b h {letter} d") if has_heads else (f"2, {length}, 24", f"b {letter} m")
        lines.append(f"{role} = {random_array.format(shape=shape, seed=seed)}  # [{axes}]")
    call = f"layer({given})"
    if kind in ("linen", "haiku"):
        lines.append(f"variables = layer.init(jax.random.PRNGKey(0), {given})")
        call = f"layer.apply(variables, {key}{given})"
    body = "\n    ".join(lines)
    return f'''# {layer_error}
import importlib
{imports}


def make():
    target = importlib.import_module("{module}").{target.name}
    {body}

    def call({", ".join(arrays)}):
        return {call}

    return call, {{{", ".join(f'"{role}": {role}' for role in arrays)}}}, {{"heads": 4}}


# Save this as factory.py next to {Path(target.file).name or module}, replace each `...`, and run:
# attn-exp check factory.py:make
'''


def find_method(owner: Any, kind: str) -> Any:
    """Return the method that computes attention, or None; PyTorch and Keras wrap it in `__call__`."""
    names = [name for name in METHODS if name != "__call__"] if kind in ("torch", "keras") else ["__call__", *METHODS]
    methods = (getattr(owner, name, None) for name in names)
    return next((method for method in methods if inspect.isfunction(method) or inspect.ismethod(method)), None)


def draft_arguments(owner: Any) -> str:
    """Return constructor arguments for the draft, with `...` for required ones of unknown meaning."""
    parameters = [parameter for parameter in every_parameter(owner, owner.__name__) if not is_starred(parameter)]
    names, sizes = [parameter.name for parameter in parameters], Sizes(4, 6, 24, 4)
    values = {
        parameter.name: value_of(parameter.name, sizes, names)
        if is_required(parameter)
        else replace_default(parameter, sizes, names)
        for parameter in parameters
    }
    arguments = {
        parameter.name: values[parameter.name]
        for parameter in parameters
        if is_required(parameter) or values[parameter.name] is not ...
    }
    return call_text("", arguments).replace("ellipsis(...)", "...")
