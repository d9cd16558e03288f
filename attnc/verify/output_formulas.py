"""Show that the outputs max_score and entropy of a READY program are the spec's.

With w = 2^x the weight of a key against the running maximum, entropy carries S, the sum of w over
keys, and E, the sum of w log2 w.  When the maximum moves, each w becomes w r and S and E become
S r and (E + S log2 r) r: then the state of a union is the merge of the states.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import sympy
from sympy import S, Symbol

from attnc import symbols
from attnc.ir.functions import Anchor, InverseOrZero
from attnc.ir.nodes import Loop, Store
from attnc.spec.schema import AttentionSpec
from attnc.verify.chains import (
    RAISED,
    Chain,
    KeyMax,
    KeySum,
    key_loops,
    maxima_of,
    sinks_of,
    sort_of,
)
from attnc.verify.equality import Sampler, equal, worst
from attnc.verify.obligations import Obligation
from attnc.verify.states import LN2, States, Step, Unreadable, log2_of, logarithm_of
from attnc.verify.vocabulary import DOT, Vocabulary

Check = Callable[[str, Store], Obligation]


@dataclass(frozen=True)
class OutputFormulas:
    """Judges the outputs of a kernel that walks keys, but for out and lse."""

    spec: AttentionSpec
    states: States
    words: Vocabulary
    sampler: Sampler

    def check_of(self, buffer: str) -> Check:
        """What shows that an output is the spec's."""
        known: dict[str, Check] = {
            "max_score": self.max_score,
            "entropy": self.entropy,
            "entropy_of_keys": self.entropy_of_keys,
        }
        return known.get(buffer, _no_formula)

    def _result(self, store: Store) -> Any:
        return Chain(self.states.kernel, keeps_conditions=False).value(store.value)

    def max_score(self, name: str, store: Store) -> Obligation:
        """A positive multiple of a running maximum from -oo, whose steps join that of the score."""
        result, maxima = self._result(store), maxima_of(self.states.kernel)
        named = [s for s in result.free_symbols if str(s) in maxima]
        if len(named) != 1:
            raise Unreadable(f"{result} is no multiple of one running maximum")
        maximum = Symbol(str(named[0]), real=True)
        unit = sympy.expand(result).coeff(maximum)
        if sympy.expand(result - unit * maximum) != 0 or sort_of(unit, ()) != "positive":
            raise Unreadable(f"{result} is no positive multiple of {maximum}")
        if self.states.starts[str(maximum)] != S.NegativeInfinity:
            return Obligation(name, "refuted", f"{maximum} does not start at -oo")
        outcomes = []
        for loop in key_loops(self.states.kernel):
            step = self.states.visible(loop)[str(maximum)]
            for sign in (1, -1):
                mine = self.words.canonical(unit * _joined(step, maximum), loop, sign)
                wanted = self.words.canonical(self._spec_score, loop, sign)
                outcomes.append(equal(name, mine, wanted, self.sampler))
        return worst(name, outcomes)

    @property
    def _spec_score(self) -> Any:
        return self.spec.score.xreplace({symbols.score: symbols.scale * DOT})

    def entropy(self, name: str, store: Store) -> Obligation:
        """That of the keys, and the term of the sink where there is one."""
        term: Any = S.Zero
        for sink in sinks_of(self.states.kernel):
            logarithm = Symbol(sink, real=True) - self._lse()
            term = sympy.exp(logarithm) * logarithm
        return self._surprise(name, store, term)

    def entropy_of_keys(self, name: str, store: Store) -> Obligation:
        """The sum over the keys of p (lse - t)."""
        return self._surprise(name, store, S.Zero)

    def _lse(self) -> Any:
        loop = key_loops(self.states.kernel)[0]
        _, unit = self.states.exponent(self.states.sums(loop)[0])
        total = Symbol(self.states.denominator, real=True)
        return Symbol(self.states.maximum, real=True) * unit * LN2 + sympy.log(total)

    def _surprise(self, name: str, store: Store, sink_term: Any) -> Obligation:
        outcomes, result = [], self._result(store)
        used = {str(symbol) for symbol in result.free_symbols}
        for loop in key_loops(self.states.kernel):
            outcomes.append(self._moves(name, loop, used))
        (moment,) = used & set(self.states.moments(key_loops(self.states.kernel)[0]))
        (summed,) = self._beside(moment)
        base = self._base(moment, key_loops(self.states.kernel)[0], summed)
        total, s, e = (Symbol(n, real=True) for n in (self.states.denominator, summed, moment))
        empty = result.xreplace({s: S.Zero, e: S.Zero, total: S.Zero})
        if not sink_term and sort_of(empty, ()) != "0":
            return Obligation(name, "refuted", f"an empty row gives {empty}")
        # the anchored are finite unless the row is empty, and then all terms are 0
        bare = result.replace(Anchor, lambda x: x).replace(InverseOrZero, lambda x: 1 / x)
        wanted = (s * sympy.log(total) - LN2 / base * e) / total - sink_term
        sampler = replace(self.sampler, positive=frozenset({total.name}))
        mine, theirs = (self.words.canonical(x, None, 1) for x in (bare, wanted))
        return worst(name, [*outcomes, equal(name, mine, theirs, sampler)])

    def _beside(self, moment: str) -> set[str]:
        """The sum of the weights that a sum of their logarithms moves by."""
        step = self.states.visible(key_loops(self.states.kernel)[0])[moment]
        return {str(symbol) for symbol in step.free_symbols} & self.states.plain

    def _moves(self, name: str, loop: Loop, used: set[str]) -> Obligation:
        """E becomes (E + S log2 r) r + the sum of w log2 w, beside S from 0, over the same w."""
        moments = {n: step for n, step in self.states.moments(loop).items() if n in used}
        if len(moments) != 1:
            raise Unreadable(f"{len(moments)} sums of logarithms in a loop, not 1")
        ((moment, step),) = moments.items()
        beside = [s for s in self.states.sums(loop) if s.name in self._beside(moment)]
        starts = {self.states.starts[n] for n in (moment, *(s.name for s in beside))}
        if len(beside) != 1 or starts != {S.Zero}:
            raise Unreadable(f"{moment} follows no sum of weights from 0")
        return self._is_moment(name, loop, moment, step, beside[0])

    def _base(self, moment: str, loop: Loop, beside: str) -> Any:
        """What logarithms to base 2 are multiplied with: 1, or ln 2 for natural ones."""
        logarithm = logarithm_of(self.states.moments(loop)[moment])
        weight = next(s.weight for s in self.states.sums(loop) if s.name == beside)
        is_natural = sympy.expand(logarithm - LN2 * log2_of(weight)) == 0
        return LN2 if is_natural else S.One

    def _is_moment(self, name: str, loop: Loop, moment: str, step: Any, beside: Step) -> Obligation:
        base, raised = self._base(moment, loop, beside.name), Anchor(RAISED)
        power = base * log2_of(beside.weight)
        old, s, e = (Symbol(n, real=True) for n in (self.states.maximum, beside.name, moment))
        logarithm = logarithm_of(step)
        summed = KeySum(beside.weight * Anchor(logarithm))
        moved = base * log2_of(beside.rescale)
        wanted = beside.rescale * (e + s * moved) + summed
        if sympy.expand(logarithm - power) != 0:
            return Obligation(name, "refuted", f"{moment} sums {logarithm}, not {power}")
        # an old maximum of -oo goes with sums of 0: any finite number stands for it
        plain = {Anchor(old): old, raised: RAISED}
        mine, theirs = (x.xreplace({summed: Symbol("summed", real=True)}) for x in (step, wanted))
        if mine.has(KeySum):
            raise Unreadable(f"{moment} sums something else than weights and their logarithms")
        if sort_of(mine.xreplace({s: S.Zero, e: S.Zero}), ()) == "?":
            return Obligation(name, "refuted", f"{moment} may be undefined in an empty row")
        return equal(name, mine.xreplace(plain), theirs.xreplace(plain), self.sampler)


def _joined(step: Any, maximum: Symbol) -> Any:
    """What a running maximum joins: a positive multiple of a maximum over the keys."""
    parts = list(step.atoms(KeyMax))
    if not isinstance(step, sympy.Max) or maximum not in step.args or len(parts) != 1:
        raise Unreadable(f"{maximum} becomes {step}, not the larger of old and new")
    factor = next(arg for arg in step.args if arg != maximum) / parts[0]
    if factor.has(KeyMax) or sort_of(factor, ()) != "positive":
        raise Unreadable(f"{step} joins no positive multiple of a maximum")
    return factor * parts[0].args[0]


def _no_formula(name: str, store: Store) -> Obligation:
    return Obligation(name, "undecided", "no formula of this output is written")
