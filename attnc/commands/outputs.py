"""Tell the user what the system does not let us write."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from attnc.errors import UserError


class CannotWrite(UserError):
    """Report a folder or a file that cannot be written."""

    code = "user/cannot-write"
    message = "cannot write {path}: {problem}"
    help = "choose another folder with -o"


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raise CannotWrite in place of an OSError, for `path` where that names none."""
    try:
        yield
    except OSError as error:
        raise CannotWrite(path=error.filename or path, problem=error.strerror) from None
