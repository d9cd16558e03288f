"""The table of faults is complete, and every test that it names exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tests.faults.coverage import ALL, NOT_HERE, PARTLY, TESTED

HERE = Path(__file__).parent


def codes_in(stem: str) -> set[str]:
    """The codes in the names of a file's tests: test_b05_b09_... covers two."""
    tree = ast.parse((HERE / f"{stem}.py").read_text(encoding="utf-8"))
    tests = (node.name for node in tree.body if isinstance(node, ast.FunctionDef))
    prefixes = (re.match(r"test((?:_[a-z]\d\d)+)_", name) for name in tests)
    return {code.upper() for found in prefixes if found for code in found[1].split("_")[1:]}


def test_every_entry_is_tested_or_has_a_reason() -> None:
    assert set(TESTED) | set(NOT_HERE) == set(ALL)
    assert not set(TESTED) & set(NOT_HERE)
    assert set(PARTLY) <= set(TESTED)
    assert all(len(reason) > 10 for reason in (*NOT_HERE.values(), *PARTLY.values()))


def test_every_tested_entry_has_a_test_of_its_name() -> None:
    found = {stem: codes_in(stem) for stem in set(TESTED.values())}
    assert [code for code, stem in TESTED.items() if code not in found[stem]] == []


def test_no_test_is_missing_from_the_table() -> None:
    named = set().union(*(codes_in(path.stem) for path in HERE.glob("test_*.py")))
    assert named <= set(TESTED)
