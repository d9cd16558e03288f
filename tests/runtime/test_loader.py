"""Loading: the cache heals itself, and interpreted and compiled copies live in one process."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

from attnc.runtime.loader import SWITCH, cache_folder, load, load_text, store

HANDMADE = Path(__file__).parents[1] / "verify" / "handmade.py"

BOTH_KINDS = """
import sys
from pathlib import Path
import torch, triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from attnc.runtime.loader import load

path = Path(sys.argv[1])
plain, run = load(path, interpret=False), load(path, interpret=True)
q, k, v = torch.randn(1, 4, 9, 32), torch.randn(1, 2, 9, 32), torch.randn(1, 2, 9, 16)
first = run.attention(q, k, v)
kernel = plain.forward_kernel
constants = {"SCALE_SIGN": 1, "D_QK": 32, "D_V": 16, "BLOCK_Q": 32, "BLOCK_KV": 32}
types = dict.fromkeys(["q", "k", "v", "out"], "*fp16") | {"lse": "*fp32", "scale": "fp32"}
signature = {n: "constexpr" if n in constants else types.get(n, "i32") for n in kernel.arg_names}
compiled = triton.compile(ASTSource(kernel, signature, constants), target=GPUTarget("cuda", 80, 32))
assert "mma" in compiled.asm["ptx"]
assert torch.equal(first, run.attention(q, k, v))
print("both", plain.INTERPRETED, run.INTERPRETED)
"""


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ATTNC_CACHE", str(tmp_path / "cache"))


@pytest.mark.parametrize("switch", ["0", "1"])
def test_compiled_and_interpreted_copies_in_one_process(switch: str, tmp_path: Path) -> None:
    """Whichever way triton itself was imported: its own library serves both."""
    environment = os.environ | {SWITCH: switch, "TRITON_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", BOTH_KINDS, str(HANDMADE)],
        env=environment, capture_output=True, text=True, cwd=HANDMADE.parents[2],
    )  # fmt: skip
    assert done.stdout == "both False True\n", done.stderr


def test_threads_may_launch_at_once() -> None:
    """The interpreter patches triton.language for the whole process."""
    module = load(HANDMADE, interpret=True)
    q, k, v = torch.randn(1, 4, 9, 32), torch.randn(1, 2, 9, 32), torch.randn(1, 2, 9, 16)
    expected = module.attention(q, k, v)
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda _: module.attention(q, k, v), range(8)))
    assert all(torch.equal(out, expected) for out in found)


def test_the_switch_is_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from triton import knobs

    for before in ("0", "1", None):
        if before is None:
            monkeypatch.delenv(SWITCH, raising=False)
        else:
            monkeypatch.setenv(SWITCH, before)
        seen = knobs.runtime.interpret
        module = load(HANDMADE, interpret=True)
        assert module.INTERPRETED
        assert os.environ.get(SWITCH) == before
        assert knobs.runtime.interpret == seen


def test_none_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "1")
    assert load(HANDMADE).INTERPRETED
    monkeypatch.delenv(SWITCH)
    assert not load(HANDMADE).INTERPRETED


def test_each_load_is_a_module_of_its_own() -> None:
    first = load_text("value = [1]\n", "small")
    second = load_text("value = [1]\n", "small")
    first.value.append(2)
    assert second.value == [1] and first.__file__ == second.__file__


def test_a_failing_module_leaves_nothing_behind() -> None:
    before = set(sys.modules)
    with pytest.raises(ZeroDivisionError):
        load_text("1 / 0\n", "broken")
    assert not {name for name in set(sys.modules) - before if "broken" in name}


def test_the_cache_is_keyed_by_content_and_heals_itself() -> None:
    path = store("x = 1\n", "kept")
    assert path.is_relative_to(cache_folder()) and path.read_text() == "x = 1\n"
    assert store("x = 1\n", "kept") == path
    assert store("x = 2\n", "kept") != path
    path.write_text("x =")  # cut short, as by a full disk
    assert store("x = 1\n", "kept").read_text() == "x = 1\n"


def test_storing_from_many_threads_never_shows_a_part() -> None:
    text = "".join(f"line_{i} = {i}\n" for i in range(20_000))
    seen = []

    def work() -> None:
        seen.append(store(text, "shared").read_text() == text)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert seen == [True] * 8
    assert [path.name for path in store(text, "shared").parent.iterdir()] == ["shared.py"]


def test_the_cache_folder_follows_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ATTNC_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", "/elsewhere")
    assert cache_folder() == Path("/elsewhere/attnc")
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert cache_folder() == Path.home() / ".cache" / "attnc"


def test_importing_the_loader_costs_no_torch() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import sys, attnc.runtime.loader; print('torch' in sys.modules)"],
        capture_output=True, text=True, cwd=HANDMADE.parents[2],
    )  # fmt: skip
    assert done.stdout == "False\n"
