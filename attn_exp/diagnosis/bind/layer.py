"""Callable layers, and how to build them from PyTorch, Flax, Haiku, Equinox, Keras or plain Python objects.

A `BuildPlan` says how to make a layer. `make_runner` makes it in float64 and in evaluation mode, and replaces
parameters that would hide mistakes. The resulting `Runner` is called once and then described by a `Layer`.
"""

from __future__ import annotations

import copy
import inspect
import re
import sys
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from attn_exp.arrays import Array, Shape
from attn_exp.diagnosis.asking.libraries import list_likely_libraries, load_library
from attn_exp.diagnosis.asking.names import every_parameter, plain, source_with_helpers
from attn_exp.diagnosis.bind.construct import build, constructor_arguments, run_foreign
from attn_exp.diagnosis.bind.sizes import Sizes, modules_of
from attn_exp.errors import UncalledError


@dataclass(frozen=True)
class Layer:
    """A user's layer, bound to example inputs.

    Attributes:
        inputs: the axes of each array by role, such as `{"x": "btm"}` or `{"q": "btm", "k": "bsm", "v": "bsm"}`:
            b batch, t queries, s keys, m width, h heads, d head size, c channels (instead of m in `bct` and `bchw`).
            Roles are `x` (self-attention), `memory` (cross-attention), `q`, `k` and `v`.
        sizes: the known fixed sizes: m, h, g (key/value heads), d, r (rotated dimensions per head).
        call: takes arrays of the library and keyword values, both by role, and returns the layer's result.
        convert: converts a NumPy array to an array of the library, in float64 if possible.
        keywords: the argument for each other role: mask, padding, causal, positions, cache and the like.
        defaults: the default values of these arguments, by role.
        extra_arguments: the arguments that every call passes in addition to the inputs, as text for the user.
        constructor_call: the call that made the layer, or the call of the factory, as shown to the user.
        settings: the constructor's arguments and the fields of its configuration.
        unknown: optional arguments of unknown meaning.
        lengths: sizes in the trial call: b, t, s; for images also h and w (rows and columns), where t = h w.
        weights: weight matrices by role, from a factory.
        mask_true: the mask polarity, from a factory: True `attends` or `hides`, or the mask is `added`.
        dropout_error: the error when the class was built with dropout.
        is_fixed: whether the number of tokens cannot change.
        widths: the width of each role, if it differs from m.
        fixed: the arrays of unknown role that a factory passes.
        axes_told: False if the layouts of the inputs are guesses, because a factory does not name them.
    """

    name: str
    library: str
    target: Any
    inputs: Mapping[str, str]
    sizes: Mapping[str, int]
    call: Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
    convert: Callable[[Array], Any]
    keywords: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    extra_arguments: str = ""
    constructor_call: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    unknown: tuple[str, ...] = ()
    lengths: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, Any] = field(default_factory=dict)
    mask_true: str = ""
    dropout_error: str = ""
    is_fixed: bool = False
    widths: Mapping[str, int] = field(default_factory=dict)
    fixed: tuple[str, ...] = ()
    axes_told: bool = True


def keep_layout(call: Callable[..., Any], output: Any, layout: str, shape: Shape) -> Callable[..., Any]:
    """Return a call whose output has the layout of its input.

    If a layer takes `[c t]` but returns `[t c]`, its output is transposed.

    Args:
        call: a call of the layer.
        output: what it returned for the example.
        layout: the layout of the input.
        shape: the shape of the input.
    """
    if layout != "ct" or getattr(output, "shape", ()) != shape[::-1]:
        return call
    return lambda inputs, keywords: call(inputs, keywords).T


# Build, prepare and call a layer

METHODS = ("forward", "call", "__call__", "attention", "self_attention", "attend", "apply", "compute", "run")
"""Common names of the method that computes attention, in search order."""
HOMES = {"linen": "flax.linen.", "nnx": "flax.nnx.", "haiku": "haiku.", "equinox": "equinox.", "keras": "keras.",
         "torch": "torch.nn."}  # fmt: skip
"""Kinds of layers, and the module that defines the base class of each."""
OF_QUERIES = re.compile("(q|k|query|key)(layer)?(norm|ln)|(norm|ln)(q|k|query|key)")
"""Names of norms of queries or keys."""
LIBRARIES = ("builtins", "torch", "flax", "haiku", "equinox", "keras", "jax", "jaxlib", "jaxtyping", "abc", "typing",
             "numpy")  # fmt: skip
"""Packages whose source code says nothing about the user's layer."""


@dataclass
class Runner:
    """A layer that can be called.

    - `target`: the object with the parameters.
    - `forward`: the method that has the signature of the call.
    - `run`: calls the layer.
    - `finish`: fills the parameters. It is called once, after the first call, which creates lazy parameters.
    - `is_parameter_free`: the layer has no parameters, so it takes q, k and v as heads and does not project them.
    """

    target: Any
    forward: Callable[..., Any]
    run: Callable[..., Any]
    finish: Callable[[], Any] = tuple
    is_parameter_free: bool = False


def kind_of(thing: Any) -> str:
    """Return the kind of a layer or its class: a key of HOMES, or `plain`."""
    modules = [f"{base.__module__}." for base in inspect.getmro(thing if inspect.isclass(thing) else type(thing))]
    return next((kind for kind, home in HOMES.items() if any(name.startswith(home) for name in modules)), "plain")


def library_of_kind(kind: str, layer: Any) -> str:
    """Return the library of a layer's arrays: `numpy`, `torch` or `jax`."""
    backend = str(sys.modules["keras"].backend.backend()) if kind == "keras" else ""
    return {"keras": backend, "torch": "torch", "plain": ""}.get(kind, "jax") or list_likely_libraries(layer)[0]


@dataclass(frozen=True)
class BuildPlan:
    """How to make a layer: by calling a class with arguments, or by copying an object.

    Attributes:
        kind: a key of HOMES, or `plain`.
        library: the library of its arrays.
        owner: the class or the object.
        arguments: the arguments of the constructor; empty for an object.
        is_class: whether `owner` is a class.
        method: the name of the method that computes attention, or an empty string if it is to be found.
        seed: seeds the global random generators before the class is called.
    """

    kind: str
    library: str
    owner: Any
    arguments: Mapping[str, Any]
    is_class: bool
    method: str = ""
    seed: int = 0


def plan_build(owner: Any, method: str, sizes: Sizes | None, seed: int) -> BuildPlan:
    """Plan how to build a class with these sizes, or how to copy an object.

    Raises:
        UncalledError: the class requires an argument whose meaning is not known.
    """
    kind = kind_of(owner)
    name = library_of_kind(kind, owner)
    is_class = inspect.isclass(owner)
    arguments = constructor_arguments(owner, sizes, name) if is_class and sizes is not None else {}
    if (
        is_class
        and kind == "keras"
        and any(parameter.kind is parameter.VAR_KEYWORD for parameter in every_parameter(owner, ""))
    ):
        arguments["dtype"] = load_library(name).widest
    return BuildPlan(kind, name, owner, arguments, is_class, method, seed)


def make_runner(plan: BuildPlan, *, wide: bool = True) -> Runner:
    """Build a new instance of the layer, or copy it, and prepare it for calls, in float64 if `wide`.

    Raises:
        UncalledError: the layer could not be built or copied, or has no method that computes attention.
    """
    if plan.kind == "haiku":
        return run_haiku(plan)
    target = (
        build(plan.owner, {name: value for name, value in plan.arguments.items() if wide or name != "dtype"}, plan.seed)
        if plan.is_class
        else run_foreign(lambda: copy.deepcopy(plan.owner), f"{type(plan.owner).__name__} cannot be copied")
    )
    if plan.kind == "linen":
        return run_linen(plan, target)
    target = PREPARE[plan.kind](target, plan.is_class, wide) or target
    method = plan.method or ("call" if plan.kind == "keras" else "")
    forward = getattr(target, method) if method else method_of(target)
    run = forward if plan.method or plan.kind == "plain" else target
    fill = {"keras": fill_keras, "torch": fill_torch}.get(plan.kind, bool)
    return Runner(target, forward, run, partial(fill if plan.is_class else bool, target), not has_parameters(target))


def method_of(target: Any) -> Callable[..., Any]:
    """Return the method that computes attention.

    Raises:
        UncalledError: no method has a name that suggests attention.
    """
    members = dir(target)  # `__getattr__` may raise anything
    names = [name for name in METHODS if name in members] + [
        name for name in members if re.match("[^_].*att|att", name)
    ]
    method = next(filter(callable, (getattr(target, name, None) for name in names)), None)
    if method is None:
        raise UncalledError(f"no method of {type(target).__name__} has a name that suggests attention; "
                            "name one as Class.method")  # fmt: skip
    return method


# Parameters of new layers: all zeros or all ones would hide mistakes


def fill_if_flat(array: Array, index: int) -> Array:
    """Replace an array that is all zeros, all ones, nearly zero or uninitialized memory with random numbers.

    `index` counts the parameters of a layer, so that each gets different numbers.
    """
    rng = np.random.default_rng([index, array.size])
    noise = rng.standard_normal(array.shape) * (array.shape[-1] ** -0.5 if array.ndim > 1 else 0.5)
    is_uninitialized = not (np.isfinite(array) & (np.abs(array) < 1e6)).all()
    is_tiny = array.size and np.abs(array).max() < 1e-3  # next to a residual, its effect would be too small to see
    is_flat = is_uninitialized or is_tiny or (array.size and array.flat[0] in (0, 1) and (array == array.flat[0]).all())
    filled = noise + (0 if is_uninitialized or is_tiny else array.flat[0])
    return np.asarray(filled).astype(array.dtype) if is_flat else array


def prepare_torch(target: Any, is_new: bool, wide: bool) -> None:
    """Convert a module to float64 if `wide`, set evaluation mode, and fill its parameters if it was built here."""
    torch = sys.modules["torch"]
    if wide:
        target.double()
    target.eval()
    leave_out_norms(target)
    for module in target.modules():
        for name, value in list(vars(module).items()) if wide else []:
            if torch.is_tensor(value) and value.is_floating_point():  # neither a parameter nor a buffer
                setattr(module, name, value.detach().double())
    if is_new:
        fill_torch(target)


def leave_out_norms(target: Any) -> None:
    """Replace group norms, and norms of queries or keys, with the identity: see `leave_out`."""
    for path, module in target.named_modules():
        is_norm = "norm" in type(module).__name__.lower() and OF_QUERIES.fullmatch(plain(path.rpartition(".")[2]))
        if is_norm or type(module) is sys.modules["torch"].nn.GroupNorm:
            vars(module)["forward"] = leave_out


def leave_out(x: Any) -> Any:
    """Return the input of a norm unchanged: a group norm mixes tokens, and only the attention is checked."""
    return x


def fill_torch(target: Any) -> None:
    torch = sys.modules["torch"]
    with torch.no_grad():
        for index, parameter in enumerate(target.parameters()):
            if not torch.nn.parameter.is_lazy(parameter):
                parameter.copy_(torch.from_numpy(fill_if_flat(parameter.detach().cpu().numpy(), index)))


def prepare_jax(target: Any, is_new: bool, _wide: bool) -> Any:
    """Return a module of Flax NNX or Equinox in the widest float type and in evaluation mode."""
    if kind_of(target) == "nnx":
        nnx = sys.modules["flax.nnx"]
        target.eval()
        graph, state = nnx.split(target)
        return nnx.merge(graph, widen_tree(state, is_new))
    return sys.modules["equinox"].nn.inference_mode(widen_tree(target, is_new))


def widen_tree(tree: Any, is_new: bool) -> Any:
    """Convert the floating-point arrays of a tree to the widest type; fill them if the layer was built here."""
    jax, backend = sys.modules["jax"], load_library("jax")
    indices = count()

    def change(leaf: Any) -> Any:
        if not isinstance(leaf, jax.Array) or not jax.numpy.issubdtype(leaf.dtype, jax.numpy.floating):
            return leaf
        array = np.asarray(leaf)
        return backend.into(fill_if_flat(array, next(indices)) if is_new else array, backend.widest)

    return jax.tree_util.tree_map(change, tree)


PREPARE: dict[str, Callable[..., Any]] = {
    "torch": prepare_torch, "nnx": prepare_jax, "equinox": prepare_jax,
    **dict.fromkeys(("keras", "plain"), lambda *_: None),
}  # fmt: skip


def fill_keras(target: Any) -> None:
    for index, weight in enumerate(target.trainable_weights):
        weight.assign(fill_if_flat(np.asarray(sys.modules["keras"].ops.convert_to_numpy(weight)), index))


def run_pure(init: Callable[..., Any], apply: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that creates the variables of a module in its first call, and uses them in every call."""
    variables = list[Any]()

    def run(*positional: Any, **named: Any) -> Any:
        variables.extend([init(*positional, **named)] if not variables else [])
        return apply(variables[0], *positional, **named)

    return run


def run_linen(plan: BuildPlan, module: Any) -> Runner:
    key, method = sys.modules["jax"].random.PRNGKey(plan.seed), plan.method or "__call__"

    def init(*positional: Any, **named: Any) -> Any:
        variables = module.init({"params": key, "dropout": key}, *positional, **named, method=method)
        return {**variables, "params": widen_tree(variables.get("params", {}), is_new=True)}

    return Runner(module, getattr(module, method), run_pure(init, partial(module.apply, method=method)))


def run_haiku(plan: BuildPlan) -> Runner:
    """Return a runner for a Haiku module; `target` is the call, because modules exist only inside `hk.transform`."""
    name, key = plan.method or "__call__", sys.modules["jax"].random.PRNGKey(plan.seed)
    create = partial(build, plan.owner, plan.arguments, plan.seed)
    pure = sys.modules["haiku"].transform_with_state(lambda *args, **named: getattr(create(), name)(*args, **named))  # noqa: PLW0108
    run = run_pure(
        lambda *args, **named: widen_tree(pure.init(key, *args, **named), is_new=True),
        lambda variables, *args, **named: pure.apply(*variables, key, *args, **named)[0],
    )
    return Runner(run, partial(getattr(plan.owner, name), None), run)


def has_parameters(target: Any) -> bool:
    """Return whether a callable has parameters, or arrays or objects that may be parameters."""
    if isinstance(target, partial):  # of JAX: `partial(module.apply, variables)`
        return any(isinstance(argument, Mapping) for argument in target.args)
    if inspect.isroutine(getattr(target, "__dict__", {}).get("__wrapped__", target)):
        return False
    values = target.parameters() if kind_of(target) == "torch" else getattr(target, "__dict__", {}).values()
    return kind_of(target) not in ("plain", "torch") or any(
        hasattr(value, "__dict__") or hasattr(value, "shape") or isinstance(value, dict) for value in values
    )


def owner_in(target: Any) -> Any:
    """Return the object with parameters that a callable is bound to or closes over; the callable if not exactly one."""
    target = target.func if isinstance(target, partial) and inspect.ismethod(target.func) else target
    if isinstance(target, partial) and has_parameters(target.func):
        return target.func
    owners = [target.__self__] if inspect.ismethod(target) and has_parameters(target.__self__) else []
    for cell in (target.__closure__ or ()) if inspect.isfunction(target) else ():
        with suppress(Exception):  # the cell is empty, or the object's own `__getattr__` raises an error
            value = cell.cell_contents
            owners += (
                [value] if not inspect.isclass(value) and not inspect.ismodule(value) and has_parameters(value) else []
            )
    return owners[0] if len(owners) == 1 else target


def widths_of_weights(target: Any) -> list[int]:
    """Return the input widths of a PyTorch module's linear layers, or the sizes of all its matrices if it has none.

    For other objects, return only the number of rows of the first matrix.
    """
    if kind_of(target) == "torch":  # nn.Linear stores weights as [out in]
        if any(map(sys.modules["torch"].nn.parameter.is_lazy, target.parameters())):
            return []
        linear = [int(module.weight.shape[1]) for module in target.modules()
                  if getattr(module, "weight", None) is not None
                  and (hasattr(module, "in_features") or getattr(module, "original_name", "") == "Linear")]  # fmt: skip
        return linear or [size for parameter in target.parameters() if parameter.ndim > 1 for size in parameter.shape]
    return [int(value.shape[0]) for value in getattr(target, "__dict__", {}).values()
            if getattr(value, "ndim", 0) == 2][:1]  # fmt: skip


def source_inside(runner: Runner) -> str:
    """Return the source code of a layer's call and of everything that it uses from the same file."""
    modules = [module for module in modules_of(runner.target) if kind_of(module) == "torch"]
    calls = [runner.forward, *(getattr(type(module), "forward", None) for module in modules)]
    return "\n".join(source_with_helpers(inspect.unwrap(call), classes=True) for call in calls
                     if call and str(getattr(call, "__module__", "")).partition(".")[0] not in LIBRARIES)  # fmt: skip
