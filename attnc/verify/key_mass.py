"""Show that a kernel which holds keys and walks queries sums exp(t - lse) for each key, from 0."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import sympy
from sympy import S

from attnc import symbols
from attnc.ir.functions import Anchor
from attnc.ir.nodes import Kernel, Load, Loop, Store
from attnc.spec.schema import AttentionSpec
from attnc.verify.chains import Chain, elements, hidden_adds_nothing, key_loops, selects
from attnc.verify.equality import Sampler, equal, worst
from attnc.verify.obligations import Obligation
from attnc.verify.states import LN2, States, Unreadable, log2_of
from attnc.verify.vocabulary import DOT, Vocabulary


@dataclass(frozen=True)
class KeyMass:
    """Judges one kernel."""

    spec: AttentionSpec
    kernel: Kernel
    sampler: Sampler

    @cached_property
    def states(self) -> States:
        """Reads its loops."""
        return States(self.kernel)

    def obligations(self) -> Iterator[Obligation]:
        """All that is shown of the kernel."""
        from_zero = set(self.states.starts.values()) == {S.Zero}
        yield _settled("state before the first tile", "" if from_zero else str(self.states.starts))
        for number, loop in enumerate(key_loops(self.kernel)):
            yield _settled(f"loop {number}: hidden pairs add nothing", self._counted(loop))
            yield self._weights(f"loop {number}: the weights are the spec's", loop)
        stores = [stmt for stmt in self.kernel.body if isinstance(stmt, Store)]
        chain = Chain(self.kernel, keeps_conditions=False)
        stored = [str(chain.value(store.value)) for store in stores]
        is_sum = stored == [*self.states.starts] and stores[0].buffer == "key_mass"
        yield _settled("key_mass is the spec's", "" if is_sum else f"{stored} are stored")

    def _counted(self, loop: Loop) -> str:
        steps = Chain(self.kernel, loop).steps()
        return ", ".join(
            f"{name} counts pairs with {condition} false"
            for condition in selects(steps.values())
            for name, step in steps.items()
            for element in elements(step)
            if not hidden_adds_nothing(element, condition, ())
        )

    def _weights(self, name: str, loop: Loop) -> Obligation:
        """exp(t - lse), for either sign of the scale; an lse of -oo counts as 0."""
        try:
            score = self._score(loop)
            words = Vocabulary(self.spec, self.states)
            wanted = self.spec.score.xreplace({symbols.score: symbols.scale * DOT})
            outcomes: list[Obligation] = []
            for sign in (1, -1):
                mine, theirs = (words.canonical(x, loop, sign) for x in (score, wanted))
                outcomes.append(equal(name, mine, theirs, self.sampler))
            return worst(name, outcomes)
        except Unreadable as reason:
            return Obligation(name, "refuted", str(reason))

    def _score(self, loop: Loop) -> sympy.Expr:
        """What is exponentiated, and lse added to it."""
        sums = self.states.sums(loop)
        if len(sums) != 1 or (sums[0].rescale, sums[0].share, sums[0].values) != (1, 1, None):
            raise Unreadable("the loop sums something else than weights")
        power = log2_of(sums[0].weight)
        anchored = list(power.atoms(Anchor))
        reads = [self.states.loads("lse").get(str(one.args[0])) for one in anchored]
        read = reads[0] if len(reads) == 1 else None
        at = read.value.index if read is not None and isinstance(read.value, Load) else ()
        if tuple(map(str, at)) != ("b", "h", "q_idx"):
            raise Unreadable(f"{power} is not less the lse of the row")
        return sympy.expand(power + anchored[0] / LN2) * LN2


def _settled(name: str, wrong: str) -> Obligation:
    return Obligation(name, "refuted" if wrong else "proved", wrong)
