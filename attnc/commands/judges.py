"""Ask for the packages that only some commands need."""

from __future__ import annotations

from attnc.errors import UserError


class NeedsPackages(UserError):
    """Report packages that are not installed."""

    code = "user/needs-packages"
    message = "{what} needs {missing}, which is not installed"
    help = "pip install 'attnc[verify]'"


def require(what: str, *modules: str) -> None:
    """Raise NeedsPackages, naming the first module that cannot be imported."""
    for module in modules:
        try:
            __import__(module)
        except ImportError:
            raise NeedsPackages(what=what, missing=module) from None
