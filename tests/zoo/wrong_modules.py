"""Layers as classes of PyTorch, `x` `[b t m]`: four linear layers, or `in_proj_weight` and `out_proj`."""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F  # noqa: N812 - the name that everybody uses
from torch import Tensor

from tests.zoo.right_modules import Four, Fused


class HeadsViewed(Four):
    def split(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), self.num_heads, -1, self.head_dim)


class HeadsMergedByView(Four):
    def merge(self, x: Tensor) -> Tensor:
        return x.reshape(x.size(0), -1, self.num_heads * self.head_dim)


class HeadsByStride(Four):
    def split(self, x: Tensor) -> Tensor:
        return x.view(x.size(0), -1, self.head_dim, self.num_heads).permute(0, 3, 1, 2)


class ScaledByModel(Four):
    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return F.scaled_dot_product_attention(q, k, v, scale=1 / math.sqrt(self.q_proj.in_features))


class SoftmaxOverHeads(Four):
    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        return torch.softmax(q @ k.mT / math.sqrt(self.head_dim), dim=1) @ v


class OutputForgotten(Four):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.split(self.q_proj(x)), self.split(self.k_proj(x)), self.split(self.v_proj(x))
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(x.shape)


class OutputTurned(Four):
    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (self.split(layer(x)) for layer in (self.q_proj, self.k_proj, self.v_proj))
        return self.merge(self.mix(q, k, v)) @ self.out_proj.weight + self.out_proj.bias


class ProjectionsTurned(Four):
    def forward(self, x: Tensor) -> Tensor:
        layers = (self.q_proj, self.k_proj, self.v_proj)
        q, k, v = (self.split(x @ layer.weight + layer.bias) for layer in layers)
        result: Tensor = self.out_proj(self.merge(self.mix(q, k, v)))
        return result


class WeightsAveraged(Four):
    """Every head gets the mean of the heads' results."""

    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        z = F.scaled_dot_product_attention(q, k, v)
        return z.mean(dim=1, keepdim=True).expand_as(z)


class OneHead(Four):
    def forward(self, x: Tensor) -> Tensor:
        z = F.scaled_dot_product_attention(self.q_proj(x), self.k_proj(x), self.v_proj(x))
        result: Tensor = self.out_proj(z)
        return result


class DropoutInside(Four):
    def mix(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        # F.scaled_dot_product_attention does not look at self.training
        return F.scaled_dot_product_attention(q, k, v, dropout_p=0.1)


class BiasForgotten(Fused):
    def projected(self, x: Tensor) -> tuple[Tensor, ...]:
        return tuple(F.linear(x, self.in_proj_weight).chunk(3, dim=-1))


class ValueBiasForgotten(Fused):
    def projected(self, x: Tensor) -> tuple[Tensor, ...]:
        m = x.size(-1)
        qk = F.linear(x, self.in_proj_weight[: 2 * m], self.in_proj_bias[: 2 * m])
        return *qk.chunk(2, dim=-1), F.linear(x, self.in_proj_weight[2 * m :])


class OrderMixed(Fused):
    def projected(self, x: Tensor) -> tuple[Tensor, ...]:
        q, v, k = F.linear(x, self.in_proj_weight, self.in_proj_bias).chunk(3, dim=-1)
        return q, k, v
