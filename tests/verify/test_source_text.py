"""What a certificate leaves out holds a schedule table and nothing else."""

from __future__ import annotations

from pathlib import Path

import pytest

from attnc.driver import compile_spec
from attnc.errors import SpecError
from attnc.verify.source_text import CHOICES, FIELDS, read_source
from tests.verify.specs import HANDMADE, spec_of

SOURCE = HANDMADE.read_text()
TABLE = next(line for line in SOURCE.splitlines() if line.startswith("SCHEDULES"))
NUMBER = SOURCE.splitlines().index(TABLE) + 1


def refusal(path: Path, table: str) -> str:
    """What is said of the handmade module with another table."""
    path.write_text(SOURCE.replace(TABLE, table))
    with pytest.raises(SpecError) as caught:
        read_source(path)
    return str(caught.value)


def test_a_table_that_was_tuned_is_read(tmp_path: Path) -> None:
    path = tmp_path / "tuned.py"
    tuned = '# by hand\nSCHEDULES = {\n    ("gfx942", 4, "forward"): {"stages": 8, "warps": 1, '
    path.write_text(SOURCE.replace(TABLE, tuned + '"block_kv": 16, "block_q": 256},\n}'))
    assert read_source(path) == path.read_text()


def test_the_launcher_accepts_the_same_values() -> None:
    source = compile_spec(spec_of("head_dim: 16\nmask: causal")).module.source
    lines = [one for one in source.splitlines() if one.startswith(("CHOICES = ", "FIELDS = "))]
    names: dict[str, object] = {}
    exec("\n".join(lines), names)
    assert names["FIELDS"] == {**FIELDS, **CHOICES}


def shown(number: int, text: str, column: int) -> str:
    return f"{number:>5} | {text}\n      | {' ' * (column - 1)}^\n"


@pytest.mark.parametrize(
    ("table", "line", "column"),
    [
        (f"{TABLE}\nimport os", 2, 1),
        (f"{TABLE}; tl.exp2 = tl.exp", 1, len(TABLE) + 3),
        (f"{TABLE}\n{TABLE}", 2, 1),
        ("SCHEDULES = dict()", 1, 1),
        ("SCHEDULES = D_V = {}", 1, 1),
        ("def forward():\n    SCHEDULES = {}", 1, 1),
    ],
)
def test_code_among_the_schedules_is_refused(
    tmp_path: Path, table: str, line: int, column: int
) -> None:
    path = tmp_path / "edited.py"
    number = NUMBER + line - 1
    place = shown(number, table.splitlines()[line - 1], column)
    assert refusal(path, table) == (
        f"{path}:{number}:{column}: user/not-a-table between the marks of the schedules may stand "
        f"SCHEDULES = {{...}} and nothing else\n{place}"
        "  help: move other code out of that part: the certificate leaves it out"
    )


@pytest.mark.parametrize(
    ("table", "said", "marked"),
    [
        (
            TABLE.replace('("sm_80", 2, ', '("sm_80", 3, '),
            "this is no device of a schedule\n"
            "{}  help: write (device class, bytes of an element, kernel), for example "
            '("sm_90", 2, "forward")',
            '("sm_80", 3, "forward")',
        ),
        (
            TABLE.replace('"block_kv": 32', '"block_kv": 48'),
            "this is no block_kv of a schedule\n{}  help: block_kv is one of 16, 32, 64, 128, 256",
            "48",
        ),
        (
            TABLE.replace('"warps": 4', '"warps": print()'),
            "this is no warps of a schedule\n{}  help: warps is one of 1, 2, 4, 8, 16",
            "print()",
        ),
        (
            TABLE.replace('"stages": 2', '"stages": True'),
            "this is no stages of a schedule\n{}  help: stages is one of 1, 2, 3, 4, 5, 6, 7, 8",
            "True",
        ),
        (
            TABLE.replace('"warps": 4, ', ""),
            "this is no tile of a schedule\n{}"
            "  help: a tile has these fields: block_q, block_kv, warps, stages",
            '{"block_q"',
        ),
        (
            TABLE.replace("{(", "{**globals(), ("),
            "this is no device of a schedule\n"
            "{}  help: write (device class, bytes of an element, kernel), for example "
            '("sm_90", 2, "forward")',
            "globals()",
        ),
    ],
)
def test_a_bad_row_is_refused(tmp_path: Path, table: str, said: str, marked: str) -> None:
    path = tmp_path / "edited.py"
    column = table.index(marked) + 1
    assert refusal(path, table) == f"{path}:{NUMBER}:{column}: user/bad-schedule-row " + (
        said.replace("{}", shown(NUMBER, table, column))
    )
