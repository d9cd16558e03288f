"""Every mistake a spec can hold, one class each.

The texts are part of the product: tests compare them whole.
"""

from __future__ import annotations

from attnc.errors import SpecError, UserError


class UnreadableSpec(UserError):
    """A spec's file cannot be read."""

    code = "user/unreadable-spec"
    message = "cannot read {path}: {problem}"


class BadSetting(UserError):
    """A `--set` is no key=value."""

    code = "user/bad-setting"
    message = "--set {setting}: {problem}"
    help = "write key=value or section.key=value, for example --set schedule.block_q=64"


# The file.


class FileTooLarge(SpecError):
    """The file is larger than any spec."""

    code = "spec/file-too-large"
    message = "the file is larger than {limit} KiB"
    help = "a spec is a page of text; is this the right file?"


class NotUtf8(SpecError):
    """The file is not UTF-8."""

    code = "spec/not-utf8"
    message = "byte {byte} is not UTF-8 text"
    help = "save the file as UTF-8"


class NotAMapping(SpecError):
    """The file's top is no mapping."""

    code = "spec/not-a-mapping"
    message = "a spec is a mapping of keys to values"
    help = "start with, for example, `heads: 8` and `head_dim: 64`"


class BadYaml(SpecError):
    """The file is no YAML."""

    code = "spec/bad-yaml"
    message = "{problem}"


class BadCharacter(SpecError):
    """The file holds a character that YAML refuses."""

    code = "spec/bad-character"
    message = "character {char} cannot stand in a spec"


class SeveralDocuments(SpecError):
    """The file holds a second YAML document."""

    code = "spec/several-documents"
    message = "a second document starts here"
    help = "one file holds one spec"


class Anchor(SpecError):
    """The file uses an anchor or an alias, by which small files unfold into large ones."""

    code = "spec/no-anchors"
    message = "anchors (&name) and aliases (*name) are not part of a spec"
    help = "write the value out; quote a text that starts with & or *"


class Tag(SpecError):
    """The file uses a YAML tag."""

    code = "spec/no-tags"
    message = "the tag {tag} is not part of a spec"
    help = "leave the tag out; quote a text that starts with !"


class TooDeep(SpecError):
    """The file nests its values too deep."""

    code = "spec/too-deep"
    message = "values are nested more than {limit} deep"


class TooManyValues(SpecError):
    """The file holds too many values."""

    code = "spec/too-many-values"
    message = "the file holds more than {limit} values"


class KeyIsNoName(SpecError):
    """A key is a list or a mapping."""

    code = "spec/key-is-no-name"
    message = "a key must be a single word"


class DuplicateKey(SpecError):
    """A key is given twice in one mapping."""

    code = "spec/duplicate-key"
    message = "{key!r} is given twice; first on line {line}"
    help = "keep one of them"


# Keys and values.


class UnknownKey(SpecError):
    """A mapping has a key that means nothing."""

    code = "spec/unknown-key"
    message = "{where} has no key {key!r}"
    help = "{advice}"


class MissingKey(SpecError):
    """A mapping lacks a key that it needs."""

    code = "spec/missing-key"
    message = "{where} needs the key {key!r}"
    help = "{advice}"


class BadValue(SpecError):
    """A key's value is of the wrong kind or outside its range."""

    code = "spec/bad-value"
    message = "{field} must be {expected}, not {given}"


class BadWord(BadValue):
    """A key's value is close to a word that it can be."""

    help = "did you mean {close}?"


class NotBuiltYet(SpecError):
    """The spec asks for what comes with a later version."""

    code = "spec/not-built-yet"
    message = "{feature} is not built yet"
    help = "{advice}"


class HeadsDoNotDivide(SpecError):
    """The query heads cannot be shared out evenly."""

    code = "spec/heads-do-not-divide"
    message = "{q} query heads cannot share {kv} key/value heads evenly"
    help = "heads.q must be a multiple of heads.kv"


class BadName(SpecError):
    """A spec, param or tensor has a name that is taken or is no identifier."""

    code = "spec/bad-name"
    message = "{name!r} cannot name a {what}: {problem}"
    help = "{advice}"


class UnusedName(SpecError):
    """A declared param or tensor is used nowhere."""

    code = "spec/unused-name"
    message = "no formula uses the {what} {name!r}"
    help = "use it in mask, score or scale, or remove it"


class NoIntegerGradient(SpecError):
    """A gradient is wanted of whole numbers."""

    code = "spec/no-integer-gradient"
    message = "tensor {name!r} holds {dtype}, which has no gradient"
    help = "remove grad, or declare dtype fp32, fp16 or bf16"


class NoGradient(SpecError):
    """A gradient is wanted of a tensor whose index no kernel can follow."""

    code = "spec/no-gradient"
    message = "no gradient of {name} is built, which is read as {read}"
    help = (
        "indices that follow query and key at once must be these positions themselves, or all be "
        "formulas of kv_idx - q_pos; else remove grad"
    )


class FlatGradient(SpecError):
    """A gradient is wanted of a tensor that only decides, so that it is zero everywhere."""

    code = "spec/flat-gradient"
    message = "the gradient of {name} is zero everywhere: formulas only compare or round it"
    help = "remove grad; a gate that learns is smooth, such as sigmoid({name}[...]) in the score"


class CheckNeedsParam(SpecError):
    """A check size leaves a param without a value."""

    code = "spec/check-needs-param"
    message = "param {name!r} has no default, so every entry of check must give it a value"
    help = (
        "give the param a default, or write for example "
        "`check: [{{q_len: 64, kv_len: 64, {name}: 1}}]`"
    )


class DivisorIsZero(SpecError):
    """A param is given a value by which a formula divides by zero."""

    code = "spec/divisor-is-zero"
    message = "a formula divides by {divisor}, which is 0 here"
    help = "the kernel refuses such params; give another value"
