"""Every mistake a spec can hold, one class each.  The texts are part of the product: tests compare them whole."""

from __future__ import annotations

from attnc.errors import SpecError, UserError


class UnreadableSpec(UserError):
    code = "user/unreadable-spec"
    message = "cannot read {path}: {problem}"


class BadSetting(UserError):
    code = "user/bad-setting"
    message = "--set {setting}: {problem}"
    help = "write key=value or section.key=value, for example --set schedule.block_q=64"


# The file.


class FileTooLarge(SpecError):
    code = "spec/file-too-large"
    message = "the file is larger than {limit} KiB"
    help = "a spec is a page of text; is this the right file?"


class NotUtf8(SpecError):
    code = "spec/not-utf8"
    message = "byte {byte} is not UTF-8 text"
    help = "save the file as UTF-8"


class NotAMapping(SpecError):
    code = "spec/not-a-mapping"
    message = "a spec is a mapping of keys to values"
    help = "start with, for example, `heads: 8` and `head_dim: 64`"


class BadYaml(SpecError):
    code = "spec/bad-yaml"
    message = "{problem}"


class BadCharacter(SpecError):
    code = "spec/bad-character"
    message = "character {char} cannot stand in a spec"


class SeveralDocuments(SpecError):
    code = "spec/several-documents"
    message = "a second document starts here"
    help = "one file holds one spec"


class Anchor(SpecError):
    code = "spec/no-anchors"
    message = "anchors (&name) and aliases (*name) are not part of a spec"
    help = "write the value out; quote a text that starts with & or *"


class Tag(SpecError):
    code = "spec/no-tags"
    message = "the tag {tag} is not part of a spec"
    help = "leave the tag out; quote a text that starts with !"


class TooDeep(SpecError):
    code = "spec/too-deep"
    message = "values are nested more than {limit} deep"


class TooManyValues(SpecError):
    code = "spec/too-many-values"
    message = "the file holds more than {limit} values"


class KeyIsNoName(SpecError):
    code = "spec/key-is-no-name"
    message = "a key must be a single word"


class DuplicateKey(SpecError):
    code = "spec/duplicate-key"
    message = "{key!r} is given twice; first on line {line}"
    help = "keep one of them"


# Keys and values.


class UnknownKey(SpecError):
    code = "spec/unknown-key"
    message = "{where} has no key {key!r}"
    help = "{advice}"


class MissingKey(SpecError):
    code = "spec/missing-key"
    message = "{where} needs the key {key!r}"
    help = "{advice}"


class BadValue(SpecError):
    code = "spec/bad-value"
    message = "{field} must be {expected}, not {given}"


class NotBuiltYet(SpecError):
    code = "spec/not-built-yet"
    message = "{feature} is not built yet"
    help = "{advice}"


class HeadsDoNotDivide(SpecError):
    code = "spec/heads-do-not-divide"
    message = "{q} query heads cannot share {kv} key/value heads evenly"
    help = "heads.q must be a multiple of heads.kv"


class BadName(SpecError):
    code = "spec/bad-name"
    message = "{name!r} cannot name a {what}: {problem}"
    help = "{advice}"


class UnusedName(SpecError):
    code = "spec/unused-name"
    message = "no formula uses the {what} {name!r}"
    help = "use it in mask, score or scale, or remove it"


class NoIntegerGradient(SpecError):
    code = "spec/no-integer-gradient"
    message = "tensor {name!r} holds {dtype}, which has no gradient"
    help = "remove grad, or declare dtype fp32, fp16 or bf16"


class CheckNeedsParam(SpecError):
    code = "spec/check-needs-param"
    message = "param {name!r} has no default, so every entry of check must give it a value"
    help = "give the param a default, or write for example `check: [{{q_len: 64, kv_len: 64, {name}: 1}}]`"


# Formulas.


class FormulaSyntax(SpecError):
    code = "spec/formula-syntax"
    message = "{problem}"


class FormulaCharacter(SpecError):
    code = "spec/formula-character"
    message = "{char} has no meaning in a formula"
    help = "{advice}"


class FormulaTooLong(SpecError):
    code = "spec/formula-too-long"
    message = "the formula has more than {limit} {what}"
    help = "put numbers that vary into a tensor and index it"


class FormulaTooDeep(SpecError):
    code = "spec/formula-too-deep"
    message = "the formula is nested more than {limit} deep"


class NotInTheLanguage(SpecError):
    code = "spec/not-in-the-language"
    message = "a formula cannot hold {what}"
    help = "{advice}"


class UnknownName(SpecError):
    code = "spec/unknown-name"
    message = "nothing is called {name!r} in {where}"
    help = "{advice}"


class UnknownFunction(SpecError):
    code = "spec/unknown-function"
    message = "no function or building block is called {name!r}"
    help = "{advice}"


class NeedsParentheses(SpecError):
    code = "spec/needs-parentheses"
    message = "a comparison beside & or | needs parentheses, because & and | bind tighter"
    help = "write {rewritten}"


class NotANumber(SpecError):
    code = "spec/not-a-number"
    message = "{where} must be a number, not a condition"
    help = "where(condition, 1, 0) makes a number of a condition"


class NotACondition(SpecError):
    code = "spec/not-a-condition"
    message = "{where} must be a condition, not a number"
    help = "compare it with something, for example {example}"


class NumberTooLarge(SpecError):
    code = "spec/number-too-large"
    message = "this number is too large: {limit}"


class NumberTooSmall(SpecError):
    code = "spec/number-too-small"
    message = "this number is not zero but below 1e-38, too small for float32"


class DivisionByZero(SpecError):
    code = "spec/division-by-zero"
    message = "this divides by zero"


class NotFinite(SpecError):
    code = "spec/not-finite"
    message = "this has no finite real value"


class BadPower(SpecError):
    code = "spec/bad-power"
    message = "a power needs a constant exponent of at most {limit} in size, or a constant base above zero"


class StrayInfinity(SpecError):
    code = "spec/stray-infinity"
    message = "inf can only be a bound of window, sliding_window or dilated"
    help = "to hide a pair, put it into the mask; to leave a bound out, write inf there"


class WrongArguments(SpecError):
    code = "spec/wrong-arguments"
    message = "{name} {problem}"
    help = "{name} is called as {signature}"


class BadArgument(SpecError):
    code = "spec/bad-argument"
    message = "{argument} of {name} must be {expected}, not {given}"


class WrongIndexCount(SpecError):
    code = "spec/wrong-index-count"
    message = "tensor {name!r} has {axes}, not {count}"
    help = "its shape is [{shape}]"


class IndexNotInteger(SpecError):
    code = "spec/index-not-integer"
    message = "index {position} of {name!r} may not be whole"
    help = "{advice}"


class TensorNotIndexed(SpecError):
    code = "spec/tensor-not-indexed"
    message = "tensor {name!r} must be indexed here"
    help = "give an index for each axis, for example {usual}"


class ZeroScale(SpecError):
    code = "spec/zero-scale"
    message = "a scale of zero makes every score equal"
    help = "the usual scale is 1/sqrt(d)"
