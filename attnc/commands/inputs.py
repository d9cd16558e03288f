"""Turn the words of a command line into specs, or say which word is wrong."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from pathlib import Path

from attnc.errors import AttncError, UserError
from attnc.spec import apply_settings, parse_spec, read_text, with_tuned
from attnc.spec.schema import AttentionSpec

SUFFIXES = (".yaml", ".yml")


class NoSuchFile(UserError):
    """Report a path that leads nowhere."""

    code = "user/no-such-file"
    message = "there is no file or folder {path}"


class Unreadable(UserError):
    """Report a path that the system does not let us look into."""

    code = "user/unreadable"
    message = "cannot read {path}: {problem}"


class NoSpecs(UserError):
    """Report a folder without specs."""

    code = "user/no-specs"
    message = "{path} holds no spec"
    help = "specs end in .yaml"


class NotASpec(UserError):
    """Report a file that is no spec by its name."""

    code = "user/not-a-spec"
    message = "{path} is not a spec"
    help = "a spec ends in .yaml; `attnc new NAME` writes one to start from"


class SameName(UserError):
    """Report two specs that would write the same file."""

    code = "user/same-name"
    message = "{first} and {second} are both called {name!r}"
    help = "give one of them another `name:`"


class BadParam(UserError):
    """Report a --param that is no number."""

    code = "user/bad-param"
    message = "--param {word}: the value must be {kind}"
    help = "write --param name=value"


class SeveralMistakes(AttncError):
    """Gather what is wrong with several specs."""

    def __init__(self, errors: Iterable[AttncError]) -> None:
        self.errors = tuple(errors)
        super().__init__(self.errors)

    def __str__(self) -> str:
        return "\n\n".join(str(error) for error in self.errors)


def find_specs(words: Sequence[str], also: tuple[str, ...] = ()) -> list[Path]:
    """Find the files that the words name: files themselves, folders for the specs inside them."""
    paths: list[Path] = []
    for word in words:
        try:
            paths += _find(Path(word), SUFFIXES + also)
        except OSError as error:
            raise Unreadable(path=word, problem=error.strerror) from None
    return list(dict.fromkeys(paths))


def _find(path: Path, suffixes: tuple[str, ...]) -> list[Path]:
    if path.is_dir():
        inside = sorted(p for p in path.iterdir() if p.suffix in SUFFIXES and p.is_file())
        if not inside:
            raise NoSpecs(path=path)
        return inside
    if not path.exists():
        raise NoSuchFile(path=path)
    if path.suffix not in suffixes:
        raise NotASpec(path=path)
    return [path]


def read_specs(
    paths: Sequence[Path], settings: Sequence[str] = (), *, tuned: bool = True
) -> list[AttentionSpec]:
    """Read every spec; gather the mistakes of all of them and raise once.

    tuned: with the schedules that stand beside it.
    """
    specs: list[AttentionSpec] = []
    errors: list[AttncError] = []
    for path in paths:
        try:
            text = apply_settings(read_text(path), settings, str(path))
            spec = parse_spec(text, shown(path))
            specs.append(with_tuned(spec, shown(path)) if tuned else spec)
        except AttncError as error:
            errors.append(error)
    if errors:
        raise errors[0] if len(errors) == 1 else SeveralMistakes(errors)
    _refuse_same_names(paths, specs)
    return specs


def shown(path: Path) -> Path:
    """Shorten a path inside the working folder: the same text comes out however it was named."""
    absolute, here = path.absolute(), Path.cwd()
    return absolute.relative_to(here) if absolute.is_relative_to(here) else path


def read_one(word: str, settings: Sequence[str] = (), *, tuned: bool = True) -> AttentionSpec:
    """Read the one spec that a word names."""
    if os.path.isdir(word):  # a Path raises where it may not look
        raise NotASpec(path=word)
    return read_specs(find_specs([word]), settings, tuned=tuned)[0]


def read_params(spec: AttentionSpec, words: Sequence[str]) -> dict[str, int | float]:
    """Read `name=value` words as params of the spec, each of its declared kind."""
    kinds = {param.name: param.kind for param in spec.params}
    found: dict[str, int | float] = {}
    for word in words:
        name, _, text = word.partition("=")
        convert = float if kinds.get(name.strip()) == "float" else int
        try:
            found[name.strip()] = convert(text)
        except ValueError:
            raise BadParam(word=word, kind=convert.__name__) from None
    return found


def _refuse_same_names(paths: Sequence[Path], specs: Sequence[AttentionSpec]) -> None:
    seen: dict[str, Path] = {}
    for path, spec in zip(paths, specs, strict=True):
        if spec.name in seen:
            raise SameName(first=seen[spec.name], second=path, name=spec.name)
        seen[spec.name] = path
