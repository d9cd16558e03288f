"""Every mistake a formula can hold, one class each."""

from __future__ import annotations

from attnc.errors import SpecError


class FormulaSyntax(SpecError):
    """A formula's text cannot be parsed."""

    code = "spec/formula-syntax"
    message = "{problem}"


class FormulaCharacter(SpecError):
    """A formula holds a character outside its language."""

    code = "spec/formula-character"
    message = "{char} has no meaning in a formula"
    help = "{advice}"


class FormulaTooLong(SpecError):
    """A formula is longer than attnc takes."""

    code = "spec/formula-too-long"
    message = "the formula has more than {limit} {what}"
    help = "put numbers that vary into a tensor and index it"


class FormulaTooDeep(SpecError):
    """A formula is nested deeper than attnc takes."""

    code = "spec/formula-too-deep"
    message = "the formula is nested more than {limit} deep"


class NotInTheLanguage(SpecError):
    """A formula holds Python that is not in its language."""

    code = "spec/not-in-the-language"
    message = "a formula cannot hold {what}"
    help = "{advice}"


class UnknownName(SpecError):
    """A formula names what is not there."""

    code = "spec/unknown-name"
    message = "nothing is called {name!r} in {where}"
    help = "{advice}"


class UnknownFunction(SpecError):
    """A formula calls what is not there."""

    code = "spec/unknown-function"
    message = "no function or building block is called {name!r}"
    help = "{advice}"


class NeedsParentheses(SpecError):
    """A comparison stands bare beside & or |."""

    code = "spec/needs-parentheses"
    message = "a comparison beside & or | needs parentheses, because & and | bind tighter"
    help = "write {rewritten}"


class NotANumber(SpecError):
    """A condition stands where a number must."""

    code = "spec/not-a-number"
    message = "{where} must be a number, not a condition"
    help = "where(condition, 1, 0) makes a number of a condition"


class NotACondition(SpecError):
    """A number stands where a condition must."""

    code = "spec/not-a-condition"
    message = "{where} must be a condition, not a number"
    help = "compare it with something, for example {example}"


class NumberTooLarge(SpecError):
    """A constant is larger than a kernel can hold."""

    code = "spec/number-too-large"
    message = "this number is too large: {limit}"


class NumberTooSmall(SpecError):
    """A constant is closer to zero than a kernel can hold."""

    code = "spec/number-too-small"
    message = "this number is not zero but below 1e-38, too small for float32"


class DivisionByZero(SpecError):
    """A divisor is zero."""

    code = "spec/division-by-zero"
    message = "this divides by zero"


class NotFinite(SpecError):
    """A constant part is infinite, complex or undefined."""

    code = "spec/not-finite"
    message = "this has no finite real value"


class BadPower(SpecError):
    """A power is of a form that no kernel computes well."""

    code = "spec/bad-power"
    message = (
        "a power needs a constant exponent of at most {limit} in size, "
        "or a constant base above zero"
    )
    help = "of what is never negative, exp(y * log(x)) is x to the y"


class StrayInfinity(SpecError):
    """Inf stands elsewhere than as a bound."""

    code = "spec/stray-infinity"
    message = "inf can only be a bound of window, sliding_window or dilated"
    help = "to hide a pair, put it into the mask; to leave a bound out, write inf there"


class WrongArguments(SpecError):
    """A call has the wrong number or names of arguments."""

    code = "spec/wrong-arguments"
    message = "{name} {problem}"
    help = "{name} is called as {signature}"


class BadArgument(SpecError):
    """A building block's argument is of the wrong kind or outside its range."""

    code = "spec/bad-argument"
    message = "{argument} of {name} must be {expected}, not {given}"


class ArgumentNotWhole(BadArgument):
    """A building block's argument varies and may fall between two whole numbers."""

    help = "write ({given}) // 1 to round down"


class WrongIndexCount(SpecError):
    """A tensor is indexed with too few or too many indices."""

    code = "spec/wrong-index-count"
    message = "tensor {name!r} has {axes}, not {count}"
    help = "its shape is [{shape}]"


class IndexNotInteger(SpecError):
    """An index may fall between two elements."""

    code = "spec/index-not-integer"
    message = "index {position} of {name!r} may not be whole"
    help = "{advice}"


class IndexOutside(SpecError):
    """An index lies outside its axis at every size."""

    code = "spec/index-outside"
    message = "index {position} of {name!r} is always outside the axis {dim}, where it reads 0"
    help = "indices run from 0 to {last}"


class NotATensor(SpecError):
    """What is one number is indexed."""

    code = "spec/not-a-tensor"
    message = "{name} is one number, and only a tensor can be indexed"
    help = "declared tensors: {known}"


class TensorNotIndexed(SpecError):
    """A tensor stands where an element of it must."""

    code = "spec/tensor-not-indexed"
    message = "tensor {name!r} must be indexed here"
    help = "give an index for each axis, for example {usual}"


class ScoreTwice(SpecError):
    """A sum adds a block that holds the score already."""

    code = "spec/score-twice"
    message = "bare {name} means {name}(score), so this sum holds the score twice"
    help = "write {name}({rest})"


class ZeroScale(SpecError):
    """The scale is zero."""

    code = "spec/zero-scale"
    message = "a scale of zero makes every score equal"
    help = "the usual scale is 1/sqrt(d)"
