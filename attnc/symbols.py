"""The vocabulary of every formula in attnc: index symbols and our own sympy functions.

Every room speaks of formulas in these words, so they stand on the ground floor.  Our own functions
exist where sympy's would rewrite what must stay provable (floor, Mod, Piecewise) or where sympy has
none.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar, cast

import sympy
from sympy import Basic, Expr, Function, Integer, Symbol
from sympy.core.relational import Relational
from sympy.logic.boolalg import Boolean, BooleanFalse, BooleanTrue

Formula = Expr | Boolean
Kept = TypeVar("Kept", bound=Basic)


def _index(name: str) -> Symbol:
    return Symbol(name, integer=True, nonnegative=True)


b = _index("b")  # batch entry
h = _index("h")  # query head
h_kv = _index("h_kv")  # key/value head: h // (Hq / Hkv)
q_idx = _index("q_idx")  # query row in its tensor
kv_idx = _index("kv_idx")  # key row in its tensor
q_len = _index("q_len")
kv_len = _index("kv_len")
q_pos = Symbol(
    "q_pos", integer=True
)  # q_idx + kv_len - q_len, may be negative; stays a symbol of its own
distance = Symbol("distance", integer=True)  # kv_idx - q_pos, of a band of pairs
d = Symbol("d", integer=True, positive=True)  # the true q/k head dim
score = Symbol("score", real=True)  # scale * (q . k)
scale = Symbol("scale", real=True)  # the run-time scale

dropout_cutoff = Symbol("dropout_cutoff", integer=True)  # weights with a lower Random are dropped
dropout_factor = Symbol("dropout_factor", real=True)  # of the weights that are kept: 1 / (1 - p)

Q_POS = q_idx + kv_len - q_len  # what q_pos means

MAX_LENGTH = 2**30  # the launcher refuses longer sequences by name
MAX_PARAM = 2**29  # and integer params larger than this in size


class OwnFunction(Function):
    """Base of our own functions, typed as they are used.

    sympy's annotations say that a call of a Function gives a class, and that arguments are Basic.
    """

    if TYPE_CHECKING:

        def __new__(cls, *args: Basic | complex, **options: bool) -> Expr: ...

        @property
        def args(self) -> tuple[Any, ...]: ...

        @classmethod
        def eval(cls, *args: Any, **options: Any) -> Any: ...


class FloorDiv(OwnFunction):
    """floor(a / b), for integers and reals alike; FloorDiv(x, 1) is floor(x)."""

    nargs = 2
    is_real = True
    is_integer = True

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        if a.is_number and b.is_number and not b.is_zero:
            return sympy.floor(a / b)
        if b == 1 and a.is_integer:
            return a
        return None


class FloorMod(OwnFunction):
    """a - b * floor(a / b): the sign follows b, as in Python."""

    nargs = 2
    is_real = True

    @classmethod
    def eval(cls, a: Expr, b: Expr) -> Expr | None:
        if a.is_number and b.is_number and not b.is_zero:
            return a - b * sympy.floor(a / b)
        return Integer(0) if b == 1 and a.is_integer else None

    def _eval_is_integer(self) -> bool | None:
        return True if all(arg.is_integer for arg in self.args) else None


class Where(OwnFunction):
    """Where(condition, a, b): a where the condition holds, b elsewhere."""

    nargs = 3

    @classmethod
    def eval(cls, condition: Boolean, a: Expr, b: Expr) -> Expr | None:
        if isinstance(condition, BooleanTrue) or a == b:
            return a
        return b if isinstance(condition, BooleanFalse) else None

    def _eval_is_integer(self) -> bool | None:
        return True if self.args[1].is_integer and self.args[2].is_integer else None

    def _eval_is_real(self) -> bool | None:
        return True if self.args[1].is_real and self.args[2].is_real else None


class Read(OwnFunction):
    """Read(tensor, i, j, ...): an element of a user tensor; 0 for an index outside its shape.

    The tensor is a Symbol whose assumptions say what its elements are (integer=True for int and
    bool tensors, real=True for float ones).  A bool tensor in a mask is `Ne(Read(...), 0)`.
    """

    @classmethod
    def eval(cls, *args: Expr) -> None:
        return None

    @property
    def tensor(self) -> str:
        return str(self.args[0])

    @property
    def indices(self) -> tuple[Expr, ...]:
        return self.args[1:]

    def _eval_is_integer(self) -> bool | None:
        return self.args[0].is_integer

    def _eval_is_real(self) -> bool | None:
        return True


class sigmoid(OwnFunction):
    """1 / (1 + exp(-x))."""

    nargs = 1
    is_real = True

    def fdiff(self, argindex: int = 1) -> Expr:
        return self * (1 - self)

    def _eval_evalf(self, prec: int) -> Expr:
        return cast(Any, 1 / (1 + sympy.exp(-self.args[0])))._eval_evalf(prec)


class Random(OwnFunction):
    """Random(seed, b, h, q_idx, kv_idx): a whole number, each of -2**31 .. 2**31 - 1 alike.

    It depends on its arguments alone: a word of Philox-4x32 with 7 rounds, whose key are the lower
    and upper half of the seed, its counter (kv_idx // 4, q_idx, h, b), its word kv_idx % 4.
    Source: Salmon et al. 2011, doi:10.1145/2063384.2063405.
    """

    nargs = 5
    is_real = True
    is_integer = True


class Anchor(OwnFunction):
    """x, but 0 where x is -inf.

    What exponents of an empty row are taken against; and the logarithm of a weight of 0.
    """

    nargs = 1
    is_real = True

    def fdiff(self, argindex: int = 1) -> Expr:
        return sympy.S.One


def nonzero(x: Expr) -> Boolean:
    """The condition x != 0."""
    return cast(Boolean, sympy.Ne(x, 0))


def power(base: Expr, exponent: Expr) -> Expr:
    """Base to the exponent, which is no whole number where its exponent varies: 2.0**h.

    A kernel computes it in float32, and sympy would take 2**h for an integer.
    """
    if base == 1:
        return base  # sympy keeps 1**x, for infinite x
    value = sympy.Pow(base, exponent)
    if value.is_integer and exponent.free_symbols:
        return sympy.Pow(sympy.Float(base, 20), exponent)
    return value


def exp2(x: Expr) -> Expr:
    """2 to the power of x."""
    return power(Integer(2), x)


def log2(x: Expr) -> Expr:
    """The logarithm of x to base 2."""
    return sympy.log(x) / sympy.log(2)


def symbols_in(formula: Basic) -> set[Symbol]:
    """The symbols that a formula speaks of; sympy calls them no more than Basic."""
    return cast(set[Symbol], formula.free_symbols)


def names_in(*formulas: Basic | None) -> set[str]:
    """The names that formulas speak of."""
    return {s.name for formula in formulas if formula is not None for s in symbols_in(formula)}


def arguments(formula: Basic) -> tuple[Expr, ...]:
    """The arguments of arithmetic, which are formulas; sympy calls them no more than Basic."""
    return cast(tuple[Expr, ...], formula.args)


def replaced(formula: Kept, changes: Mapping[Any, Basic]) -> Kept:
    """A formula with every part that is a key of `changes` replaced, of the kind that it was."""
    return cast(Kept, formula.xreplace(changes))


def sign_of(relation: Relational) -> str:
    """How a relation compares: == != < <= > or >=; sympy declares it on no common class."""
    return cast(Any, relation).rel_op


keep = Symbol("keep")  # the condition that a gradient is wanted, which reads what the call keeps


def switch_of(tensor: str) -> Symbol:
    """The condition that a call gives an optional tensor; a kernel is compiled for either case."""
    return Symbol(f"has_{tensor}")


def tensor_symbol(name: str, dtype: str) -> Symbol:
    """The Symbol that stands for a declared tensor inside Read."""
    return (
        Symbol(name, real=True) if dtype in ("fp32", "fp16", "bf16") else Symbol(name, integer=True)
    )


def param_symbol(name: str, kind: str) -> Symbol:
    """The Symbol of a run-time scalar: kind is `int` or `float`."""
    return Symbol(name, integer=True) if kind == "int" else Symbol(name, real=True)


def value_symbol(name: str, dtype: str = "f32") -> Symbol:
    """The Symbol by which formulas name a computed value (a tile, a row value, a scalar)."""
    if dtype in ("i32", "i64"):
        return Symbol(name, integer=True)
    return Symbol(name, real=True)
