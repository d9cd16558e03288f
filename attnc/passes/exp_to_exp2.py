"""Write the weights of a loop, exponentials against a row's anchor, as exp2 of one multiply-add.

Why: the hardware has exp2.  p = exp(scale s - lse) is exp2(s f - r), with f = scale log2 e and
r = lse log2 e made before the loop where they do not change in it.

A weight is at most 1, and what the product rounds is little of it.  An exponential in the user's
score is of any size and stays as it is: exp(50) as exp2(50 log2 e) would be 50 ulp off.

A score that may come near the largest float32 (a user's bias of -3.4e38 is finite) is not
multiplied before lse is subtracted: times log2 e it would become -inf.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar, cast

import sympy
from sympy import Basic, Expr, exp

from attnc.ir.functions import Anchor, Exp2, tile_symbol
from attnc.ir.nodes import Formula, Kernel, Let, Level, Load, Loop, Stmt
from attnc.ir.rebuild import lets_of, prune, reads_of, reads_of_reduction
from attnc.passes.exponents import LOG2_E, constant_factor, holds_real_param, may_be_huge
from attnc.symbols import arguments, replaced


@dataclass(frozen=True, slots=True)
class ExpToExp2:
    """p := exp(scale qk - anchor(lse))   ->   p := exp2(qk scale log2 e - anchor(lse) log2 e)."""

    name: ClassVar[str] = "exp-to-exp2"
    needs: ClassVar[Level] = Level.STREAMED
    leaves: ClassVar[Level] = Level.STREAMED

    def run(self, kernel: Kernel) -> Kernel:
        """Rewrite every value of a loop that is such an exponential."""
        body = tuple(
            _loop(stmt, kernel) if isinstance(stmt, Loop) else stmt for stmt in kernel.body
        )
        return prune(replace(kernel, body=body))


def _loop(loop: Loop, kernel: Kernel) -> Stmt:
    return replace(loop, body=tuple(_let(let, loop, kernel) for let in loop.body))


def _let(let: Let, loop: Loop, kernel: Kernel) -> Let:
    match let.value:
        case Formula(exp() as formula) if formula.has(Anchor):
            power = _exp2(arguments(formula)[0], let, loop, kernel)
            return replace(let, value=Formula(replaced(power, _needless_anchors(kernel))))
        case _:
            return let


def _exp2(exponent: Expr, let: Let, loop: Loop, kernel: Kernel) -> Expr:
    """2 to the exponent times log2 e."""
    written = cast(Expr, replaced(exponent, _only_read_by(let, loop)))
    score = sympy.Add(*(t for t in sympy.Add.make_args(written) if not isinstance(-t, Anchor)))
    _, rest = constant_factor(score, kernel)
    if may_be_huge(score, loop, kernel) or holds_real_param(rest, loop, kernel):
        return Exp2(sympy.Mul(exponent, LOG2_E, evaluate=False))
    return Exp2(sympy.expand(written * LOG2_E))


def _needless_anchors(kernel: Kernel) -> dict[Basic, Expr]:
    """Anchors of what is read from a buffer without infinities."""
    loads = {let.name: let.value for let in lets_of(kernel.body) if isinstance(let.value, Load)}
    finite = (name for name, load in loads.items() if kernel.buffer(load.buffer).finite)
    return {Anchor(tile_symbol(name)): tile_symbol(name) for name in finite}


def _only_read_by(let: Let, loop: Loop) -> dict[Basic, Expr]:
    """What nothing else reads, written out where it is a product: one factor the less."""
    others = [reads_of(other) for other in loop.body if other.name != let.name]
    others += [reads_of_reduction(reduction) for reduction in loop.reductions]
    read = set().union(*others)
    return {
        tile_symbol(other.name): cast(Expr, other.value.expr)
        for other in loop.body
        if other.name not in read
        and isinstance(other.value, Formula)
        and isinstance(other.value.expr, sympy.Mul)
    }
