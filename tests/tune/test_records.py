"""Records are written whole, and what cannot be read is nothing."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable
from pathlib import Path

import pytest

from attnc.tune.choose import Candidate
from attnc.tune.records import Record, load, record_path, save

KEY = {"name": "llama", "device": "h200", "kernels": "ab12", "sizes": [1, 4096, 4096]}
SCHEDULE = (("block_q", 128), ("block_kv", 64), ("warps", 8), ("stages", 3))
RECORD = Record(
    KEY,
    (
        Candidate("forward", SCHEDULE, 168, 0, 0, 98304, 1, 1e-3, "tensor", "", 1.2e-3),
        Candidate("backward_q", SCHEDULE, problem="no block of it fits a multiprocessor"),
    ),
)


def test_a_record_comes_back(tmp_path: Path) -> None:
    path = record_path(KEY, tmp_path)
    assert load(KEY, path) is None
    save(RECORD, path)
    assert load(KEY, path) == RECORD
    assert path.name.startswith("llama.h200.")
    assert [one.kernel for one in RECORD.of("forward")] == ["forward"]


def test_another_key_is_another_record(tmp_path: Path) -> None:
    other = {**KEY, "kernels": "cd34"}
    assert record_path(other, tmp_path) != record_path(KEY, tmp_path)
    save(RECORD, record_path(KEY, tmp_path))
    assert load(other, record_path(KEY, tmp_path)) is None


def test_a_person_may_edit_it(tmp_path: Path) -> None:
    path = record_path(KEY, tmp_path)
    save(RECORD, path)
    plain = json.loads(path.read_text())
    plain["candidates"][0]["measured"] = 5e-4
    path.write_text(json.dumps(plain))
    found = load(KEY, path)
    assert found and found.candidates[0].measured == 5e-4


@pytest.mark.parametrize(
    "damage",
    [
        lambda text: "",
        lambda text: text[: len(text) // 2],
        lambda text: "[]",
        lambda text: "null",
        lambda text: text.replace('"format": 1', '"format": 0'),
        lambda text: text.replace('"kernel": "forward"', '"kernle": "forward"'),
        lambda text: text.replace('"registers": 168', '"registers": 168, "more": 1'),
        lambda text: text.replace("0.0012", '"fast"'),
        lambda text: text.replace("0.0012", "NaN"),
        lambda text: text.replace('"block_q": 128', '"block_q": "x"'),
    ],
)
def test_a_damaged_record_is_none(tmp_path: Path, damage: Callable[[str], str]) -> None:
    path = record_path(KEY, tmp_path)
    save(RECORD, path)
    spoilt = damage(path.read_text())
    assert spoilt != path.read_text()
    path.write_text(spoilt)
    assert load(KEY, path) is None
    save(RECORD, path)
    assert load(KEY, path) == RECORD


def test_what_is_no_file_is_no_record(tmp_path: Path) -> None:
    path = record_path(KEY, tmp_path)
    path.mkdir(parents=True)
    assert load(KEY, path) is None


def _save_often(path: Path) -> None:
    for _ in range(20):
        save(RECORD, path)


def test_many_processes_may_write_it(tmp_path: Path) -> None:
    path = record_path(KEY, tmp_path)
    save(RECORD, path)
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=_save_often, args=(path,)) for _ in range(4)]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert load(KEY, path) == RECORD
    assert [writer.exitcode for writer in writers] == [0, 0, 0, 0]
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
