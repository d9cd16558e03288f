"""One compiled and loaded module for each spec that the tests of this folder use."""

from __future__ import annotations

from tests.faults.conftest import build, one_thread

__all__ = ["build", "one_thread"]
