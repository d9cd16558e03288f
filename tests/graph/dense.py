"""Evaluate a dataflow on whole tensors: every value has all seven axes, some of length 1."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from sympy import Basic, true
from torch import Tensor

from attnc import symbols
from attnc.graph.forward import DIM_INDEX
from attnc.graph.operations import (
    AXES,
    Contract,
    Dataflow,
    Gather,
    Input,
    Largest,
    LogSumExp,
    Map,
    Operation,
    Scatter,
)
from attnc.verify.torch_formulas import Meanings, evaluate

AXES_OF = {"batch": "b", "heads": "gr", "kv_heads": "g", "q_len": "q", "kv_len": "k"}


class Dense:
    """The values of a dataflow at small sizes.

    lengths: of the axes.  tensors: q, k, v as [b g r q d] ..., declared tensors in their own
    shapes.  numbers: params and scale, 0-d.
    """

    def __init__(
        self,
        flow: Dataflow,
        lengths: Mapping[str, int],
        tensors: Mapping[str, Tensor],
        numbers: Mapping[str, Tensor],
    ) -> None:
        self.flow, self.lengths, self.tensors = flow, lengths, tensors
        self.values: dict[str, Tensor] = dict(numbers) | self._positions()
        for name, operation in flow.values.items():
            self.values[name] = self._value(operation)

    def gradient(self, leaf: str) -> Tensor:
        """A gradient in the shape of its operand."""
        name = self.flow.gradients[leaf]
        operation = self.flow.values[name]
        value = self.values[name]
        if isinstance(operation, Scatter):
            return value
        shape = next((one.shape for one in self.flow.spec.tensors if one.name == leaf), ())
        value, axes = self.along(value, operation.axes), operation.axes
        order = [axis for dim in shape for axis in AXES_OF[str(dim)]] or list(axes)
        turned = value.permute([axes.index(axis) for axis in order])
        return turned.reshape(self.tensors[leaf].shape) if shape else turned

    def along(self, value: Tensor, axes: tuple[str, ...]) -> Tensor:
        """A value less the axes that it lacks."""
        value = value.expand([self.lengths[a] if a in axes else 1 for a in AXES])
        return value.reshape([self.lengths[a] for a in AXES if a in axes])

    def _positions(self) -> dict[str, Tensor]:
        def along(axis: str) -> Tensor:
            return self._spread(torch.arange(self.lengths[axis]), (axis,))

        h = along("g") * self.lengths["r"] + along("r")
        lengths = {f"{axis}_len": torch.tensor(self.lengths[axis[0]]) for axis in ("q",)}
        lengths["kv_len"] = torch.tensor(self.lengths["k"])
        q_pos = along("q") + self.lengths["k"] - self.lengths["q"]
        return lengths | {
            "b": along("b"), "h": h, "h_kv": along("g"), "q_idx": along("q"), "q_pos": q_pos,
            "kv_idx": along("k"), "d": torch.tensor(self.flow.spec.head_dim_qk),
        }  # fmt: skip

    def _spread(self, tensor: Tensor, axes: tuple[str, ...]) -> Tensor:
        """Lay a tensor over its axes out over all of them."""
        return tensor.reshape([self.lengths[a] if a in axes else 1 for a in AXES])

    def _formula(self, formula: Basic) -> Tensor:
        return evaluate(formula, Meanings(self.values, self.tensors))

    def _value(self, operation: Operation) -> Tensor:
        match operation:
            case Input(tensor) if tensor in (one.name for one in self.flow.spec.tensors):
                shape = next(one.shape for one in self.flow.spec.tensors if one.name == tensor)
                places = (DIM_INDEX[str(dim)] for dim in shape)
                return self._formula(symbols.Read(symbols.tensor_symbol(tensor, "fp32"), *places))
            case Input(tensor, axes):
                return self._spread(self.tensors[tensor], axes)
            case Gather(tensor, indices):
                read = symbols.Read(symbols.tensor_symbol(tensor, "fp32"), *indices)
                return self._formula(read)
            case Contract(operands, axes):
                product = torch.ones((), dtype=torch.float64)
                for operand in operands:
                    product = product * self.values[operand]
                product = product.expand([
                    self.lengths[a]
                    if any(a in self.flow.values[o].axes for o in operands) else 1
                    for a in AXES
                ])  # fmt: skip
                summed = [i for i, axis in enumerate(AXES) if axis not in axes]
                return product.sum(summed, keepdim=True)
            case Map(formula, _, where):
                value = self._formula(formula)
                return torch.where(self._where(where), value, torch.zeros((), dtype=value.dtype))
            case LogSumExp((operand, *others), _, _, where):
                shown = self._shown(operand, where)
                joined = [self.values[o].expand(*shown.shape[:4], 1, 1, 1) for o in others]
                joined = torch.cat([shown, *joined], AXES.index("k"))
                return joined.logsumexp(AXES.index("k"), keepdim=True)
            case Largest(operand, _, _, where):
                return self._shown(operand, where).amax(AXES.index("k"), keepdim=True)
            case Scatter(tensor, parts):
                return self._scattered(tensor, parts)

    def _shown(self, operand: str, where: Basic) -> Tensor:
        return torch.where(self._where(where), self.values[operand], -torch.inf)

    def _where(self, where: Basic) -> Tensor:
        return torch.tensor(True) if where == true else self._formula(where)

    def _scattered(self, tensor: str, parts: Iterable[tuple[str, tuple[Basic, ...]]]) -> Tensor:
        made = torch.zeros(self.tensors[tensor].shape, dtype=torch.float64)
        for operand, indices in parts:
            made = self._scatter(operand, made, indices)
        return made

    def _scatter(self, operand: str, tensor: Tensor, indices: tuple[Basic, ...]) -> Tensor:
        full = [self.lengths[a] if a in self.flow.values[operand].axes else 1 for a in AXES]
        places = [self._formula(index).expand(full).reshape(-1) for index in indices]
        inside = torch.ones_like(places[0], dtype=torch.bool)
        for place, size in zip(places, tensor.shape, strict=True):
            inside &= (place >= 0) & (place < size)
        values = self.values[operand].expand(full).reshape(-1)
        kept = tuple(place[inside] for place in places)
        return tensor.index_put(kept, values[inside], accumulate=True)
