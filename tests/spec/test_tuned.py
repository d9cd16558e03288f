"""The schedules beside a spec: what they decide, and what is said of mistakes in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from attnc.errors import SpecErrors
from attnc.spec import parse_spec, read_spec, with_tuned
from attnc.spec.frozen import FrozenMap
from attnc.spec.schema import Tuned, TunedRow
from attnc.spec.tuned import parse_tuned, print_tuned, tuned_path

ROW = TunedRow(
    target="sm_90",
    element_bytes=2,
    kernel="forward",
    schedule=FrozenMap({"block_q": 128, "block_kv": 128, "warps": 8, "stages": 2}),
    device="h200",
    by="prediction",
    microseconds=812.3,
    kernels="ab12",
)
OTHER = TunedRow("sm_80", 2, "forward", ROW.schedule)


def text_of(**changes: object) -> str:
    plain = json.loads(print_tuned(Tuned((ROW,))))
    plain["schedules"][0] |= changes
    return json.dumps(plain)


def test_what_is_printed_is_read() -> None:
    tuned = Tuned((ROW, OTHER))
    assert parse_tuned(print_tuned(tuned)) == tuned
    assert json.loads(print_tuned(tuned))["schedules"][0]["block_kv"] == 128
    assert parse_tuned(print_tuned(Tuned(()))) == Tuned(())


def test_a_hand_may_write_the_least() -> None:
    row = "{target: sm_80, element_bytes: 2, kernel: forward, block_q: 128, block_kv: 128, "
    assert parse_tuned(f"schedules: [{row} warps: 8, stages: 2}}]") == Tuned((OTHER,))


def test_it_is_found_beside_the_spec(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("heads: 8\nhead_dim: 64\n")
    assert read_spec(path).tuned is None
    tuned_path(path).write_text(print_tuned(Tuned((ROW,))))
    assert tuned_path(path).name == "mine.tuned.json"
    assert read_spec(path).tuned == Tuned((ROW,))
    assert with_tuned(parse_spec(path.read_text()), path).tuned == Tuned((ROW,))


def test_the_last_row_for_the_same_counts_and_rows_replace_their_like() -> None:
    second = TunedRow("sm_90", 2, "forward", FrozenMap({**ROW.schedule, "stages": 3}))
    assert Tuned((ROW, second)).schedule("sm_90", 2, "forward") == second.schedule
    assert Tuned((ROW, OTHER)).with_rows([second]) == Tuned((OTHER, second))
    assert Tuned((ROW,)).schedule("sm_90", 4, "forward") is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (text_of(warps=7), "schedules[0].warps must be one of 1, 2, 4, 8, 16, not '7'"),
        (text_of(target="sm_91"), "schedules[0].target must be one of sm_75, sm_80, sm_86, sm_89, "
         "sm_90, sm_100, sm_120, gfx942, gfx950, not the text 'sm_91'"),
        (text_of(element_bytes=3), "schedules[0].element_bytes must be one of 2, 4, not '3'"),
        (text_of(block=3), "a tuned row has no key 'block'"),
        ('{"schedules": [{"target": "sm_90"}]}', "schedules[0] needs the key 'block_q'"),
        ("{}", "a file of tuned schedules needs the key 'schedules'"),
        ("[1", "expected ',' or ']'"),
    ],
)  # fmt: skip
def test_mistakes_are_named(text: str, message: str) -> None:
    with pytest.raises(SpecErrors) as error:
        parse_tuned(text, "mine.tuned.json")
    assert message in str(error.value)
    assert "mine.tuned.json:1:" in str(error.value)
