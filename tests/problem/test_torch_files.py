"""Layers of PyTorch, saved and read as files: a run gives what the layer itself gives."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.compose import comparison

pytest.importorskip("torch", reason="PyTorch is not installed: pip install 'attn-exp[torch]'")

import torch
from safetensors.torch import save_file


def saved(module: torch.nn.Module, folder: Path) -> str:
    """Write the weights of a module, as its users do, and return the words that read them."""
    save_file({name: tensor.contiguous() for name, tensor in module.state_dict().items()}, folder / "w.safetensors")
    return f"projections.file={folder}/w.safetensors"


@pytest.mark.parametrize("heads", [1, 2, 4])
def test_a_layer_of_multi_head_attention(heads: int, tmp_path: Path) -> None:
    torch.manual_seed(heads)
    layer = torch.nn.MultiheadAttention(8, heads, batch_first=True, dtype=torch.float64)
    torch.nn.init.normal_(layer.in_proj_bias)
    torch.nn.init.normal_(layer.out_proj.bias)
    x = torch.randn(1, 5, 8, dtype=torch.float64)
    np.save(tmp_path / "x.npy", x.numpy())
    output, weights = layer(x, x, x, average_attn_weights=False)
    words = ("embeddings=file", f"embeddings.file={tmp_path}/x.npy", "projections=file", saved(layer, tmp_path))
    found = comparison(*words, "projections.transposed=true", "bias=true", f"head={heads}", "variant=multi_head")
    trace = found.traces["multi_head"]
    assert trace.weights is not None
    assert trace.output is not None
    np.testing.assert_allclose(trace.weights, weights[0].detach().numpy(), atol=1e-14)
    np.testing.assert_allclose(trace.output, output[0].detach().numpy(), atol=1e-14)
