"""Record the ATen operations that PyTorch dispatches during a call.

`record` runs the call in a dispatch mode, which receives each operation and passes it to a `Recorder`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.attention.flex_attention as flex
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils._python_dispatch import TorchDispatchMode

from attn_exp.arrays import Array
from attn_exp.diagnosis.asking.libraries import collect_arrays
from attn_exp.diagnosis.observe.trace import (
    MAX_SIZE,
    Call,
    Location,
    Product,
    Recorder,
    Trace,
    resolve_subscripts,
)

PRODUCTS = {
    "mm": (0, "td,ds->ts"), "addmm": (1, "td,ds->ts"), "bmm": (0, "ntd,nds->nts"), "baddbmm": (1, "ntd,nds->nts"),
    "mv": (0, "td,d->t"), "addmv": (1, "td,d->t"), "dot": (0, "d,d->"), "linear": (0, "...d,sd->...s"),
}  # fmt: skip
"""The index of each product's first factor among its arguments, and its subscripts."""
SUMS = {"addmm": torch.mm, "baddbmm": torch.bmm, "addmv": torch.mv}
"""The plain product of each operation that adds `beta` times a bias to `alpha` times a product.

If alpha is not 1, the product and the sum are recorded as two operations.
"""


def record(call: Call, inputs: Mapping[str, Any], cache: dict[Any, Any] | None = None) -> Trace:
    """Record the call of a PyTorch function; see `record_with`. Fused attention runs as separate operations."""
    recorder = Recorder(is_dense, locate_tensor, copy_tensor, restore_tensor)
    tracked = {name: tensor.detach().clone() for name, tensor in inputs.items()}
    recorder.add_inputs(tracked)
    was_fast = torch.backends.mha.get_fastpath_enabled()
    was_eager = flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG
    torch.backends.mha.set_fastpath_enabled(value=False)
    flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = True
    try:
        with torch.no_grad(), sdpa_kernel(SDPBackend.MATH), Dispatch(recorder):
            returned = call(tracked)
    finally:
        torch.backends.mha.set_fastpath_enabled(value=was_fast)
        flex._FLEX_ATTENTION_DISABLE_COMPILE_DEBUG = was_eager
    return recorder.make_trace(collect_arrays(returned).values())


class Dispatch(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self.recorder = recorder

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        return False  # otherwise PyTorch imports its compiler, which takes seconds

    def __torch_dispatch__(
        self, function: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs, run = kwargs or {}, self.recorder.run
        name = function.__name__.partition(".")[0].rstrip("_")
        writes = find_written(function, args, kwargs)
        is_scaled = name in SUMS and kwargs.get("alpha", 1) != 1
        if writes or not is_scaled:
            reads = not is_constant(function, name)
            product = None if is_scaled else find_product(name, args)
            return run(name, function, (args, kwargs), writes=writes, reads=reads, product=product)
        multiply, alpha, beta = SUMS[name], kwargs["alpha"], kwargs.get("beta", 1)
        product_name, (bias, *factors) = multiply.__name__, args
        unscaled = run(product_name, multiply, (tuple(factors), {}), product=find_product(product_name, factors))
        return run(  # PyTorch ignores the bias if beta is 0, even if it is NaN
            name, lambda bias, product: alpha * product + (beta * bias if beta else 0), ((bias, unscaled), {})
        )


def find_written(function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    """Return the tensors among the arguments that an operation overwrites, such as `self` of `add_`."""
    parameters = getattr(getattr(function, "_schema", None), "arguments", ())
    values = dict(zip((parameter.name for parameter in parameters), args, strict=False)) | dict(kwargs)
    written = [values.get(one.name) for one in parameters if one.alias_info is not None and one.alias_info.is_write]
    return [tensor for tensor in written if is_dense(tensor)]


def is_constant(function: Any, name: str) -> bool:
    """Return whether the result ignores the contents of the arguments: it is a new or a random tensor."""
    tags = getattr(function, "tags", ())
    return torch.Tag.nondeterministic_seeded in tags or name.endswith("_like") or name.startswith("new_")


def find_product(name: str, args: Sequence[Any]) -> Product | None:
    if name == "convolution":
        return find_pointwise_product(*args)
    if name not in PRODUCTS:
        return None
    left, subscripts = PRODUCTS[name]
    return Product(left, left + 1, resolve_subscripts(subscripts, [tensor.ndim for tensor in args[left : left + 2]]))


def find_pointwise_product(x: Any, kernel: Any, bias: Any, stride: Any, padding: Any, *options: Any) -> Product | None:
    """Return the product of a convolution with a kernel of size 1; None if it combines several positions."""
    _, is_transposed, _, groups = options
    if is_transposed or groups != 1 or max(padding) > 0 or max(*stride, *kernel.shape[2:]) > 1:
        return None
    image_axes, kernel_axes = "tuv"[: x.ndim - 2], "xyz"[: x.ndim - 2]
    return Product(0, 1, (f"bc{image_axes}", f"oc{kernel_axes}", f"bo{image_axes}"))


def is_dense(value: Any) -> bool:
    """Return whether a value is a tensor whose numbers can be copied to NumPy and that has strides."""
    is_strided = isinstance(value, torch.Tensor) and value.layout == torch.strided
    return is_strided and not (value.is_nested or value.is_quantized or value.is_meta)


def locate_tensor(tensor: Any) -> Location:
    strides = tuple(stride * tensor.itemsize for stride in tensor.stride())
    kind = f"{tensor.dtype} {tensor.is_conj()} {tensor.is_neg()}"
    return Location(tensor.untyped_storage()._cdata, tensor.data_ptr(), tuple(tensor.shape), strides, kind)


def copy_tensor(tensor: Any) -> Array:
    plain = tensor.detach().resolve_conj().resolve_neg().cpu()
    # NumPy has no bfloat16
    array: Array = (plain.float() if plain.is_floating_point() and plain.itemsize < 4 else plain).numpy()
    return array.copy() if array.size <= MAX_SIZE else array


def restore_tensor(array: Array) -> Any:
    return torch.from_numpy(np.array(array, order="C"))
