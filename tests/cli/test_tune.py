"""`attnc tune`: for a GPU that is not here; what it writes, keeps and refuses."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from attnc.cli import main
from attnc.tune import search
from attnc.verify.certificate import same_kernels

SMALL = "heads: 2\nhead_dim: 16\nmask: causal\nbackward: false\nsizes: {q_len: 512, kv_len: 512}\n"
FEW = ["--candidates", "3"]


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNC_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def small(here: Path) -> Path:
    path = here / "small.yaml"
    path.write_text(SMALL)
    return path


def test_tunes_bakes_and_answers_again_at_once(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert main(["compile", "small.yaml"]) == 0
    before = Path("generated/small.py").read_text()
    capsys.readouterr()
    assert main(["tune", "small.yaml", "--target", "a100", *FEW]) == 0
    told = capsys.readouterr().out
    assert told.startswith(
        "small on a100 (sm_80), bf16, batch 1, 512 queries, 512 keys\n\nforward\n"
    )
    assert re.search(r"\n  \d+x\d+, \d+ warps?, \d stages?: predicted \d+\.\d+ us; ", told)
    assert re.search(
        r"\n[3-6] schedules, \d+\.\d s; record: .*small\.a100\.[0-9a-f]{16}\.json\n", told
    )
    assert not Path("small.tuned.json").exists()
    assert Path("generated/small.py").read_text() == before

    def compiles(*_: object) -> None:
        raise AssertionError("what is known is not compiled again")

    monkeypatch.setattr(search, "compile_all", compiles)
    assert main(["tune", "small.yaml", "--target", "a100", *FEW, "--bake", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert report["baked"] == {"schedules": "small.tuned.json", "file": "generated/small.py"}
    tried = [one for one in report["candidates"] if not one["schedule"]["last_first"]]
    assert len(tried) == 3
    winner = report["winners"]["forward"]
    (row,) = json.loads(Path("small.tuned.json").read_text())["schedules"]
    assert {name: row.get(name, False) for name in winner["schedule"]} == winner["schedule"]
    assert (row["target"], row["element_bytes"], row["device"]) == ("sm_80", 2, "a100")
    assert row["by"] == "prediction" and row["microseconds"] > 0
    after = Path("generated/small.py").read_text()
    assert same_kernels(before, after)
    assert f'("sm_80", 2, "forward"): {_shown(winner["schedule"])}' in after


def test_a_baked_schedule_is_kept_until_the_kernels_change(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tune", "small.yaml", "--target", "a100", "--candidates", "1", "--bake"]) == 0
    capsys.readouterr()
    assert main(["compile", "small.yaml"]) == 0
    assert capsys.readouterr().out == "small.yaml -> generated/small.py (tuned schedules)\n"
    small.write_text(SMALL.replace("causal", "causal | prefix(3)"))
    assert main(["compile", "small.yaml"]) == 0
    assert capsys.readouterr().out == (
        "small.yaml -> generated/small.py (tuned schedules; those of sm_80 were found for an "
        "earlier text of the kernels)\n"
    )


def test_baking_keeps_the_rows_of_others(small: Path) -> None:
    row = '{"target": "sm_90", "element_bytes": 2, "kernel": "forward", "block_q": 64, '
    row += '"block_kv": 64, "warps": 4, "stages": 2, "by": "hand"}'
    Path("small.tuned.json").write_text(f'{{"schedules": [{row}]}}')
    assert main(["tune", "small.yaml", "--target", "a100", "--candidates", "1", "--bake"]) == 0
    rows = json.loads(Path("small.tuned.json").read_text())["schedules"]
    assert [(one["target"], one["by"]) for one in rows] == [
        ("sm_90", "hand"),
        ("sm_80", "prediction"),
    ]


def test_both_orders_of_the_tiles_are_priced_without_compiling_twice(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A causal mask: the longest tiles come last, unless they are turned."""
    sizes = ["--set", "sizes={batch: 8, q_len: 8192, kv_len: 8192}"]
    assert (
        main(["tune", "small.yaml", "--target", "a100", "--candidates", "1", *sizes, "--json"]) == 0
    )
    usual, turned = json.loads(capsys.readouterr().out)["candidates"]
    assert turned == usual | {
        "schedule": usual["schedule"] | {"last_first": True},
        "predicted": turned["predicted"],
        "why": turned["why"],
    }
    assert turned["predicted"] < usual["predicted"]
    asked = ["--set", "schedule.last_first=true"]
    words = ["tune", "small.yaml", "--target", "a100", "--candidates", "1", *sizes, *asked]
    assert main([*words, "--json"]) == 0
    (only,) = json.loads(capsys.readouterr().out)["candidates"]
    assert only["schedule"]["last_first"] and only["predicted"] == pytest.approx(
        turned["predicted"], rel=0.01
    )


def test_turing_gets_a_forward_by_tuning(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """No class of the table has its schedule: it stands in the file once it was asked for."""
    small.write_text(SMALL.replace("backward: false\n", ""))
    words = ["tune", "small.yaml", "--target", "t4", "--candidates", "2", "--bake"]
    assert main(words) == 2
    assert capsys.readouterr().err == (
        "user/refused-target forward cannot be made for sm_75 (T4, RTX 20): "
        "it computes no bf16; take fp16: `dtype: fp16` in the spec\n"
    )
    assert main([*words, "--dtype", "fp16", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert list(report["winners"]) == ["forward"]
    found = report["winners"]["forward"]
    assert found["shared_bytes"] <= 64 * 1024 and found["loop_spills"] == 0
    text = Path("generated/small.py").read_text()
    rows = re.findall(r'\("sm_75".*', text)
    assert rows == [f'("sm_75", 2, "forward"): {_shown(found["schedule"])},']


def _shown(schedule: dict[str, int]) -> str:
    """As the generated file has it."""
    return "{" + ", ".join(f'"{name}": {value}' for name, value in schedule.items() if value) + "}"


NO_DEVICE = """\
user/no-device no GPU is here to tune for
  help: name one that need not be here: --target h200; `attnc list devices` knows them
"""


def test_without_a_gpu_one_must_be_named(
    small: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert main(["tune", "small.yaml"]) == 2
    assert capsys.readouterr().err == NO_DEVICE


def test_an_edited_kernel_is_not_lost_and_nothing_is_half_written(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["compile", "small.yaml"]) == 0
    path = Path("generated/small.py")
    path.write_text(path.read_text() + "# mine\n")
    words = ["tune", "small.yaml", "--target", "a100", "--candidates", "1", "--bake"]
    assert main(words) == 2
    assert "was edited after attnc wrote it" in capsys.readouterr().err
    assert not Path("small.tuned.json").exists()
    assert main([*words, "--force"]) == 0
    assert Path("small.tuned.json").exists()


def test_mistakes_in_the_file_beside_the_spec_come_before_the_work(
    small: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("small.tuned.json").write_text('{"schedules": [{"target": "sm_1"}]}')
    assert main(["tune", "small.yaml", "--target", "a100"]) == 2
    assert "small.tuned.json:1:27: spec/bad-value" in capsys.readouterr().err


def test_where_nothing_fits_it_says_so(small: Path, capsys: pytest.CaptureFixture[str]) -> None:
    small.write_text(SMALL.replace("16", "128"))
    asked = ["--set", "schedule.block_q=64", "--set", "schedule.block_kv=64"]
    asked += ["--set", "schedule.warps=4", "--set", "schedule.stages=8"]
    assert main(["tune", "small.yaml", "--target", "a100", *asked, "--candidates", "1"]) == 2
    err = capsys.readouterr().err
    assert err.startswith("user/nothing-fits no schedule of forward that was tried runs on a100: ")
