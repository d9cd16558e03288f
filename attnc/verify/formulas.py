"""Show that the formulas of a READY program are those of its spec.

Per loop: what is exponentiated is the spec's score, hidden keys add nothing, and the state of a
union of keys is the merge of the states (the streaming step is a homomorphism), empty rows
included.  After the loops: out = acc / l and lse = m + ln l, in natural units.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import sympy
from sympy import Basic, S, Symbol

from attnc import symbols
from attnc.ir.functions import Anchor, InverseOrZero
from attnc.ir.nodes import Kernel, Loop, Program, Start, Store
from attnc.spec.schema import AttentionSpec
from attnc.symbols import Random, Read, Where
from attnc.verify.chains import (
    MINUS_INFINITY,
    RAISED,
    Chain,
    KeyMax,
    elements,
    hidden_adds_nothing,
    key_loops,
    maxima_of,
    selects,
    sinks_of,
    sort_of,
)
from attnc.verify.equality import Sampler, equal, worst
from attnc.verify.interpreted import forward_of
from attnc.verify.key_mass import KeyMass
from attnc.verify.obligations import Obligation
from attnc.verify.output_formulas import OutputFormulas
from attnc.verify.states import LN2, States, Unreadable, log2_of
from attnc.verify.vocabulary import DOT, Vocabulary

Check = Callable[..., Obligation]
FLOORED = "for scores and sinks above -2e38"


def check_formulas(spec: AttentionSpec, program: Program) -> tuple[Obligation, ...]:
    """Compare score, streaming step and results of each kernel of the forward with the spec."""
    found: list[Obligation] = []
    for kernel in forward_of(program).kernels:
        judge = _Judge(spec, kernel, States(kernel))
        made = judge.obligations()
        prefix = "" if len(program.kernels) == 1 else f"{kernel.name}: "
        found += [replace(one, name=prefix + one.name) for one in made]
    return tuple(found)


def _guarded(name: str, check: Check, *args: Any) -> Obligation:
    """The outcome of a check; a program that does not read that way is refuted."""
    try:
        return check(name, *args)
    except Unreadable as reason:
        return Obligation(name, "refuted", str(reason))


@dataclass(frozen=True)
class _Judge:
    spec: AttentionSpec
    kernel: Kernel
    states: States

    def obligations(self) -> list[Obligation]:
        """All that is shown of the kernel."""
        if self.kernel.axis("k").role == "rows":
            return [*KeyMass(self.spec, self.kernel, self.sampler).obligations()]
        made = [_guarded("state before the first tile", self.start)]
        for number, loop in enumerate(key_loops(self.kernel)):
            made += self.loop_obligations(number, loop)
        return [*made, *self.results()]

    @cached_property
    def words(self) -> Vocabulary:
        """How the kernel's names translate to the spec's."""
        return Vocabulary(self.spec, self.states)

    @cached_property
    def sampler(self) -> Sampler:
        """Where formulas are compared when algebra does not decide."""
        whole = frozenset(p.name for p in self.spec.params if p.kind == "int")
        return Sampler(self.spec.heads_q, whole, frozenset({"scale"}))

    def start(self, name: str) -> Obligation:
        """The empty set of keys: maximum -oo, sums 0; with a sink that alone: sink, 1, sums 0."""
        starts, maximum = self.states.starts, self.states.maximum
        known = {S.NegativeInfinity, S.Zero, sympy.Float(0)}
        by_sink = {n for n, at in starts.items() if str(at) in sinks_of(self.kernel)}
        of_one = {n for n, at in starts.items() if at in (S.One, sympy.Float(1))}
        if by_sink != ({maximum} if self.spec.sink else set()) or len(of_one) != len(by_sink):
            return Obligation(name, "refuted", f"{starts}: not the state of the sink")
        filled = {n for n, at in starts.items() if at in known}
        wrong = [n for n in starts if n not in filled | by_sink | of_one]
        if wrong:
            return Obligation(name, "refuted", f"{', '.join(wrong)}: neither -oo nor 0")
        kinds = [type(s) for s in self.kernel.body if isinstance(s, Start | Loop)]
        if Loop in kinds and Start in kinds[kinds.index(Loop) :]:
            return Obligation(name, "refuted", "something starts anew after a loop")
        return Obligation(name, "proved", FLOORED if self.spec.sink else "")

    def loop_obligations(self, number: int, loop: Loop) -> list[Obligation]:
        """All that is shown of one loop."""
        checks = {
            "hidden keys add nothing": self.hidden,
            "an empty row stays empty and finite": self.empty_rows,
            "the score is the spec's": self.score,
            "the share of each weight is the spec's": self.share,
            "the maximum is that of the score": self.maximised,
            "the state of a union is the merge of the states": self.merges,
        }
        return [_guarded(f"loop {number}: {n}", check, loop) for n, check in checks.items()]

    def hidden(self, name: str, loop: Loop) -> Obligation:
        """Every sum and maximum has its identity where any of the conditions fails."""
        steps = Chain(self.kernel, loop).steps()
        maxima = maxima_of(self.kernel)
        for condition in selects(steps.values()):
            for carried, step in steps.items():
                for element in elements(step):
                    if not hidden_adds_nothing(element, condition, maxima):
                        detail = f"{carried} counts keys with {condition} false"
                        return Obligation(name, "refuted", detail)
        return Obligation(name, "proved")

    def empty_rows(self, name: str, loop: Loop) -> Obligation:
        """With the maximum still -oo, what was summed counts 0, and no exponent is undefined."""
        maxima, maximum = maxima_of(self.kernel), Symbol(self.states.maximum, real=True)
        for step in self.states.sums(loop):
            exponent, _ = self.states.exponent(step)
            if exponent.free_symbols & {maximum, RAISED}:
                return Obligation(name, "refuted", f"{step.name}: {step.weight} may be undefined")
            before = step.rescale.xreplace({maximum: MINUS_INFINITY})
            if sort_of(before, maxima) != "0":
                return Obligation(name, "refuted", f"{step.name} is rescaled by {before} at first")
        return Obligation(name, "proved")

    def score(self, name: str, loop: Loop) -> Obligation:
        """What is exponentiated is the spec's score, for either sign of the scale."""
        spec_score = self.spec.score.xreplace({symbols.score: symbols.scale * DOT})
        outcomes: list[Obligation] = []
        for step in self.states.sums(loop):
            exponent, _ = self.states.exponent(step)
            for sign in (1, -1):
                mine = self.words.canonical(exponent * LN2, loop, sign)
                theirs = self.words.canonical(spec_score, loop, sign)
                outcomes.append(equal(name, mine, theirs, self.sampler))
        return worst(name, outcomes)

    def share(self, name: str, loop: Loop) -> Obligation:
        """All of each weight is summed; with values and dropout, all or nothing."""
        number = Random(seed_of_call(), symbols.b, symbols.h, symbols.q_idx, symbols.kv_idx)
        kept = Where(number >= symbols.dropout_cutoff, sympy.Float(1), sympy.Float(0))
        for step in self.states.sums(loop):
            meant = kept if self.spec.dropout and step.values else S.One
            mine, theirs = (self.words.canonical(x, loop, 1) for x in (step.share, meant))
            if mine not in (theirs, sympy.Float(1) * theirs):
                return Obligation(name, "refuted", f"{step.name} counts {step.share} of a weight")
        return Obligation(name, "proved")

    def maximised(self, name: str, loop: Loop) -> Obligation:
        """The running maximum joins the maximum of the score, in the unit of the anchor."""
        raised = self.states.visible(loop)[self.states.maximum]
        before = Symbol(self.states.maximum, real=True)
        two = isinstance(raised, sympy.Max) and len(raised.args) == 2
        if not two or before not in raised.args:
            raise Unreadable(f"the maximum becomes {raised}, not the larger of old and new")
        joined: Any = next(arg for arg in raised.args if arg != before)
        parts = list(joined.atoms(KeyMax))
        if len(parts) != 1:
            raise Unreadable(f"the maximum joins {len(parts)} maxima over the keys, not 1")
        factors = [factor for factor in sympy.Mul.make_args(joined) if factor != parts[0]]
        factor = sympy.Mul(*factors)
        if sort_of(factor, ()) != "positive" or len(factors) == len(sympy.Mul.make_args(joined)):
            raise Unreadable(f"{joined} is no positive multiple of a maximum")
        outcomes = []
        for step in self.states.sums(loop):
            exponent, unit = self.states.exponent(step)
            largest = factor * parts[0].args[0] * unit
            for sign in (1, -1):
                mine, theirs = (self.words.canonical(x, loop, sign) for x in (largest, exponent))
                outcomes.append(equal(name, mine, theirs, self.sampler))
        return worst(name, outcomes)

    def merges(self, name: str, loop: Loop) -> Obligation:
        """2^(x - m), rescaled, is 2^(x - raised): old and new sums are over one exponent."""
        old = Symbol(self.states.maximum, real=True)
        outcomes = []
        for step in self.states.sums(loop):
            self.states.exponent(step)
            power = log2_of(step.weight)
            summed = power.xreplace({Anchor(RAISED): old})
            moved = sympy.expand(summed + log2_of(step.rescale)).xreplace({Anchor(RAISED): RAISED})
            wanted = power.xreplace({Anchor(RAISED): RAISED})
            mine, theirs = (self.words.canonical(x, loop, 1) for x in (moved, wanted))
            outcomes.append(equal(name, mine, theirs, self.sampler))
        return worst(name, outcomes)

    def results(self) -> list[Obligation]:
        """Every stored output is the spec's."""
        stores = [stmt for stmt in self.kernel.body if isinstance(stmt, Store)]
        found = []
        for store in stores:
            feature = [str(i) for i in store.index if self._feature(i)]
            what = f"{store.buffer}{feature if feature else ''} is the spec's"
            found.append(_guarded(what, self._check_of(store.buffer), store))
        return found

    def _check_of(self, buffer: str) -> Check:
        """What shows that an output is the spec's."""
        if buffer == "lse":
            return self.lse
        if buffer in ("out", "ungated"):
            return self.out
        return OutputFormulas(self.spec, self.states, self.words, self.sampler).check_of(buffer)

    def _feature(self, index: Basic) -> str | None:
        roles = {str(axis.index): axis.name for axis in self.kernel.axes if axis.role == "feature"}
        return roles.get(str(index))

    def _sums_by_values(self) -> dict[str | None, str]:
        """Feature axis of the summed values (None: the sum of all weights) -> carried name."""
        found: dict[str | None, str] = {None: self.states.denominator}
        for loop in key_loops(self.kernel):
            for step in self.states.sums(loop):
                if step.name in self.states.plain:
                    continue
                axes = self.states.loads("v")[step.values].axes if step.values else ()
                feature = [a for a in axes if self.kernel.axis(a).role == "feature"]
                key = feature[0] if feature else None
                if found.setdefault(key, step.name) != step.name:
                    raise Unreadable(f"{step.name} and {found[key]} sum the same")
        return found

    def _result(self, store: Store) -> Basic:
        return Chain(self.kernel, keeps_conditions=False).value(store.value)

    def lse(self, name: str, store: Store) -> Obligation:
        """m + ln l, with m brought to natural units."""
        _, unit = self.states.exponent(self.states.sums(key_loops(self.kernel)[0])[0])
        m, total = (
            Symbol(self.states.maximum, real=True),
            Symbol(self._sums_by_values()[None], real=True),
        )
        wanted = self.words.canonical(m * unit * LN2, None, 1) + sympy.log(total)
        sampler = replace(self.sampler, positive=frozenset({total.name}))
        return equal(name, self.words.canonical(self._result(store), None, 1), wanted, sampler)

    def out(self, name: str, store: Store) -> Obligation:
        """The weighted sum by the sum; `out` times the head's gate where there is one."""
        sums = self._sums_by_values()
        feature = next(f for f in map(self._feature, store.index) if f)
        acc, total = Symbol(sums[feature], real=True), Symbol(sums[None], real=True)
        result = self._result(store)
        if sort_of(result.xreplace({total: S.Zero, acc: S.Zero}), ()) not in ("0", "finite"):
            return Obligation(name, "refuted", f"an empty row gives {result}")
        wanted = acc * InverseOrZero(total)
        wanted *= symbols.dropout_factor if self.spec.dropout else S.One
        if self.spec.head_gate and store.buffer == "out":
            wanted *= Read(symbols.tensor_symbol("head_gate", "fp32"), symbols.h)
        mine, theirs = (self.words.canonical(x, None, 1) for x in (result, wanted))
        return equal(name, mine, theirs, self.sampler)


def seed_of_call() -> sympy.Expr:
    """The 64 bits that a call with dropout is given."""
    return Read(symbols.tensor_symbol("dropout_seed", "int64"))
