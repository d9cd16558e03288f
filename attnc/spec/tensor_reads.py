"""Read the index of a declared tensor."""

from __future__ import annotations

import ast
from typing import TYPE_CHECKING

from sympy import Expr, Integer

from attnc import symbols
from attnc.spec import formula_mistakes as mistakes
from attnc.spec.schema import Tensor
from attnc.spec.unknown_words import fail_tensor
from attnc.symbols import Formula, arguments

if TYPE_CHECKING:
    from attnc.spec.formula_reader import FormulaReader


def read_element(reader: FormulaReader, node: ast.Subscript) -> Formula:
    """Read `tensor[i, j]`: a number, or a condition when the tensor holds bool."""
    if not isinstance(node.value, ast.Name):
        advice = "only a declared tensor can be indexed"
        reader.fail(node, mistakes.NotInTheLanguage, what="this index", advice=advice)
    tensor = declared_tensor(reader, node.value)
    parts = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
    if len(parts) != len(tensor.shape):
        shape = ", ".join(map(str, tensor.shape))
        axes = f"{len(tensor.shape)} {'axis' if len(tensor.shape) == 1 else 'axes'}"
        facts = {"name": tensor.name, "axes": axes, "count": len(parts), "shape": shape}
        reader.fail(node, mistakes.WrongIndexCount, **facts)
    indices = [_index(reader, part, at, tensor) for at, part in enumerate(parts, 1)]
    table = symbols.tensor_symbol(tensor.name, tensor.dtype)
    element = symbols.Read(table, *indices)
    return symbols.nonzero(element) if tensor.dtype == "bool" else element


def element_of(condition: Formula) -> Expr:
    """The element, 0 or 1, of a bool tensor that a condition says is not 0."""
    return next(part for part in arguments(condition) if isinstance(part, symbols.Read))


_LENGTHS = {"q_len": symbols.q_len, "kv_len": symbols.kv_len}
_INDEX = {"batch": "b", "heads": "h", "kv_heads": "h_kv", "q_len": "q_idx", "kv_len": "kv_idx"}


def usual_index(tensor: Tensor) -> str:
    """How a tensor is usually indexed, for advice: `bias[h, q_idx, kv_idx]`."""
    return f"{tensor.name}[{', '.join(_INDEX.get(str(dim), '0') for dim in tensor.shape)}]"


def declared_tensor(reader: FormulaReader, node: ast.Name) -> Tensor:
    """The declared tensor that a name stands for, noted as used."""
    tensor = reader.declared.tensors.get(node.id)
    if tensor is None:
        fail_tensor(reader, node, "shape: [heads, q_len, kv_len]")
    if reader.role == "scale":
        facts = {"name": node.id, "where": "a scale"}
        advice = "what a tensor holds belongs into score"
        reader.fail(node, mistakes.UnknownName, **facts, advice=advice)
    reader.used.add(node.id)
    return tensor


def _index(reader: FormulaReader, node: ast.expr, at: int, tensor: Tensor) -> Expr:
    index = reader.number(node, f"index {at} of {tensor.name}")
    if not index.is_integer:
        advice = f"write ({reader.source(node)}) // 1 to round down"
        reader.fail(node, mistakes.IndexNotInteger, position=at, name=tensor.name, advice=advice)
    dim = tensor.shape[at - 1]
    size = _LENGTHS.get(dim) if isinstance(dim, str) else Integer(dim)
    if index.is_negative or (size is not None and (index - size).is_nonnegative):
        last = dim - 1 if isinstance(dim, int) else f"{dim} - 1"
        reader.fail(node, mistakes.IndexOutside, position=at, name=tensor.name, dim=dim, last=last)
    return index
