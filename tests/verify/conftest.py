"""A machine that grants less than verify asks for."""

from __future__ import annotations

import errno
import mmap
import os
from typing import Any

import pytest


@pytest.fixture
def no_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Refuse address space by the gigabyte, as a limit on it does."""
    grant = mmap.mmap

    def refuse(file: int, length: int, **options: Any) -> mmap.mmap:
        if length > 2**30:
            raise OSError(errno.ENOMEM, os.strerror(errno.ENOMEM))
        return grant(file, length, **options)

    monkeypatch.setattr(mmap, "mmap", refuse)
