"""Say the formulas of a program in the words of its spec, so that the two can be compared."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import sympy
from sympy import Basic, Symbol

from attnc import symbols
from attnc.ir.functions import Log2
from attnc.ir.nodes import Load, Loop
from attnc.spec.schema import AttentionSpec
from attnc.symbols import FloorDiv, Read
from attnc.verify.chains import Chain, Inner
from attnc.verify.states import LN2, States, Unreadable

DOT = Symbol("dot", real=True)  # q . k
TINY = sympy.Float("1e-30")  # a factor below this is a guard against 0, no part of the formula


@dataclass(frozen=True)
class Vocabulary:
    """The words of a spec, and how a kernel's names translate to them."""

    spec: AttentionSpec
    states: States

    def canonical(self, formula: Basic, loop: Loop | None, sign: int) -> Any:
        """Say a formula in the spec's words, with the scale's sign fixed and dots as one symbol."""
        chain = Chain(self.states.kernel, loop, keeps_conditions=False)
        formula = self._with_reads(self._with_dot(formula), chain)
        signs = [s.name for s in self.states.kernel.scalars if s.kind == "sign"]
        positive = Symbol("scale", positive=True)
        words: dict[str, Any] = {
            "scale": sign * positive,
            "q_pos": symbols.Q_POS,
            "h_kv": FloorDiv(symbols.h, self.spec.group),
            "d": sympy.Integer(self.spec.head_dim_qk),
            **{name: sympy.Integer(sign) for name in signs},
        }
        known = {s: words[str(s)] for s in formula.free_symbols if str(s) in words}
        formula = _unguarded(formula.xreplace(known)).replace(Log2, lambda x: sympy.log(x) / LN2)
        return formula.xreplace({s: _plain(s, positive) for s in formula.free_symbols})

    def _with_dot(self, formula: Basic) -> Basic:
        """Replace the sum of the products of all feature pieces by one symbol."""
        inners = sorted(formula.atoms(Inner), key=str)
        if not inners:
            return formula
        self._check_pieces(inners)
        rest = sympy.Add(*inners[1:])
        result = sympy.expand(formula.xreplace({inners[0]: DOT - rest}))
        if result.has(Inner):
            raise Unreadable("the score is no function of q . k")
        return result

    def _check_pieces(self, inners: Iterable[Basic]) -> None:
        """The pieces pair q with k over the same features, and cover each feature once."""
        covered: list[int] = []
        for left, right, over in (inner.args for inner in inners):
            axis = self.states.kernel.axis(str(over))
            if str(left) in self.states.loads("k"):  # a kernel that holds keys has them first
                left, right = right, left
            q, k = self.states.loads("q").get(str(left)), self.states.loads("k").get(str(right))
            if q is None or k is None or axis.name not in q.axes or axis.name not in k.axes:
                raise Unreadable(f"{left} . {right} is no product of q and k over {over}")
            first, stop = int(axis.first), min(int(axis.first + axis.tile), int(axis.size))
            covered += range(first, stop)
        if sorted(covered) != list(range(self.spec.head_dim_qk)):
            raise Unreadable("the products do not cover each feature of q and k once")

    def _with_reads(self, formula: Any, chain: Chain) -> Any:
        """Replace names of loaded elements by reads of the tensor; a read's own tensor stays."""
        if isinstance(formula, Read):
            indices = (self._with_reads(index, chain) for index in formula.indices)
            return Read(formula.args[0], *indices)
        if isinstance(formula, Symbol):
            let = chain.lets.get(formula.name)
            if let is not None and isinstance(let.value, Load):
                return self._read(let.value, chain)
            return formula
        if not formula.args:
            return formula
        return formula.func(*(self._with_reads(arg, chain) for arg in formula.args))

    def _read(self, load: Load, chain: Chain) -> Any:
        dtypes: Mapping[str, str] = {t.name: t.dtype for t in self.spec.tensors}
        dtypes = {"dropout_seed": "int64", **dtypes}
        tensor = symbols.tensor_symbol(load.buffer, dtypes.get(load.buffer, "fp32"))
        indices = (self._with_reads(chain.formula(index), chain) for index in load.index)
        return Read(tensor, *indices)


def _plain(symbol: Basic, positive: Symbol) -> Basic:
    """One symbol for each name, whatever its assumptions were; tensors keep theirs."""
    if symbol == positive:
        return symbol
    whole = bool(symbol.is_integer)
    return Symbol(str(symbol), integer=True) if whole else Symbol(str(symbol), real=True)


def _unguarded(formula: Basic) -> Basic:
    """Drop the lower limits that keep a factor from being 0."""

    def is_guarded(part: Basic) -> bool:
        numbers = [arg for arg in part.args if isinstance(arg, sympy.Float) and 0 < arg < TINY]
        return isinstance(part, sympy.Max) and len(numbers) == 1

    def bare(part: Basic) -> Basic:
        return sympy.Max(*(a for a in part.args if not (isinstance(a, sympy.Float) and a < TINY)))

    return formula.replace(is_guarded, bare)
