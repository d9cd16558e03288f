"""Plant faults in a READY program and see each one caught by the proofs or the numbers.

A mutant that nothing catches is shown to be equivalent: every obligation that holds of the program
holds of the mutant too, which means that it visits, selects, sums and stores what the spec says.
Otherwise it survived, and verify has a hole.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

from attnc.ir.nodes import Kernel, Program
from attnc.spec.schema import AttentionSpec
from attnc.verify.claims import Tiling, coverage_claims
from attnc.verify.faults import all_faults
from attnc.verify.faults_choices import choice_faults
from attnc.verify.faults_gradients import gradient_faults
from attnc.verify.formulas import check_formulas
from attnc.verify.interpreted import forward_of, mismatch, small_cases
from attnc.verify.interpreted_gradients import Trial, check_gradients, trials_of
from attnc.verify.meaning import Subject
from attnc.verify.obligations import Obligation
from attnc.verify.proofs import claims_of, prove_claim, shapes_of
from attnc.verify.switches import settled


@dataclass(frozen=True, slots=True)
class Mutant:
    """A program with one fault."""

    name: str
    program: Program


@dataclass(frozen=True, slots=True)
class Verdict:
    """What became of a mutant.  outcome: killed | equivalent | survived; `by`: what decided."""

    name: str
    outcome: str
    by: str


def ir_mutants(program: Program) -> Iterator[Mutant]:
    """Every fault of the catalogue at every place where it can be made."""
    seen: set[tuple[Kernel, ...]] = set()
    forward = len(forward_of(program).kernels)
    for number, kernel in enumerate(program.kernels):
        more = gradient_faults(kernel) if number >= forward else ()
        for name, faulty in chain(all_faults(kernel), choice_faults(kernel), more):
            kernels = (*program.kernels[:number], faulty, *program.kernels[number + 1 :])
            if kernels not in seen:
                seen.add(kernels)
                prefix = "" if len(program.kernels) == 1 else f"{kernel.name}: "
                yield Mutant(prefix + name, replace(program, kernels=kernels))


def campaign(spec: AttentionSpec, program: Program) -> Iterator[Verdict]:
    """Judge every mutant of a program, as it is where all that it may do is done."""
    _, spec, program = next(settled(spec, program))
    jury = Jury(spec, program)
    for mutant in ir_mutants(program):
        yield jury.judge(mutant)


def judge(spec: AttentionSpec, mutant: Mutant, original: Program) -> Verdict:
    """Judge one mutant of a program."""
    return Jury(spec, original).judge(mutant)


@dataclass(frozen=True)
class Jury:
    """Judges mutants of one program against what holds of the program itself."""

    spec: AttentionSpec
    original: Program
    _lacking: dict[tuple[str, ...], frozenset[str]] = field(default_factory=dict)

    @cached_property
    def trials(self) -> tuple[Trial, ...]:
        """Calls on which gradients are compared."""
        return trials_of(self.spec)

    @property
    def shortcomings(self) -> frozenset[str]:
        """Obligations that the original does not meet: they convict nobody."""
        return self._lacks(tuple(kernel.name for kernel in self.original.kernels))

    def _lacks(self, names: tuple[str, ...]) -> frozenset[str]:
        """The shortcomings of some kernels of the original."""
        if names not in self._lacking:
            kernels = [kernel for kernel in self.original.kernels if kernel.name in names]
            found = self._obligations(self.original, kernels)
            self._lacking[names] = frozenset(one.name for one in found if not one.ok)
        return self._lacking[names]

    def judge(self, mutant: Mutant) -> Verdict:
        """Proofs and formulas, then numbers: the first that refutes it convicts."""
        doubts: list[str] = []
        faulty = [k for k in mutant.program.kernels if k not in self.original.kernels]
        names = tuple(kernel.name for kernel in faulty)
        for obligation in self._obligations(mutant.program, faulty):
            if obligation.ok or obligation.name in self._lacks(names):
                continue
            if obligation.status in ("refuted", "failed"):
                return Verdict(mutant.name, "killed", obligation.name)
            doubts.append(obligation.name)
        if problem := self._problem(mutant.program, faulty):
            return Verdict(mutant.name, "killed", f"numbers, {problem}")
        if doubts or self._lacks(names):
            undecided = ", ".join([*doubts, *sorted(self._lacks(names))])
            return Verdict(mutant.name, "survived", f"undecided: {undecided}")
        return Verdict(mutant.name, "equivalent", "every obligation holds of it")

    def _problem(self, program: Program, faulty: Sequence[Kernel]) -> str:
        """What the numbers of the forward say, where that has the fault."""
        if not set(faulty) & set(forward_of(program).kernels):
            return ""
        found = ((case.name, mismatch(program, self.spec, case)) for case in small_cases(self.spec))
        return next((f"{case}: {problem}" for case, problem in found if problem), "")

    def _obligations(self, program: Program, kernels: Sequence[Kernel]) -> Iterator[Obligation]:
        """What is shown of kernels; what convicts most, and fastest, first.

        Ranges and masks, formulas, the rest.
        """
        subjects = [
            Subject(self.spec, kernel, *shape)
            for kernel in kernels
            for shape in shapes_of(program, kernel)
        ]
        for subject in subjects[:1]:
            for claim in coverage_claims(Tiling(subject.kernel)):
                yield prove_claim(claim, subject)
        forward = forward_of(program).kernels
        if set(kernels) & set(forward):
            yield from check_formulas(self.spec, program)
        if set(kernels) - set(forward):
            yield from check_gradients(self.spec, program, self.trials)
        for subject in subjects:
            for claim in claims_of(Tiling(subject.kernel)):
                yield prove_claim(claim, subject)
