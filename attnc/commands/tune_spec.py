"""`attnc tune`: refused by name until the tuner is built."""

from __future__ import annotations

from argparse import Namespace

from attnc.errors import UserError


class NotBuiltYet(UserError):
    """Report a command that a later version brings."""

    code = "user/not-built-yet"
    message = "attnc tune is not built yet"
    help = (
        "set a schedule by hand: attnc compile SPEC --set schedule.block_q=64; "
        "--target reports whether it fits"
    )


def run(options: Namespace) -> int:
    """Refuse."""
    raise NotBuiltYet
