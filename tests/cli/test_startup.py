"""Start-up is part of the contract: what a command may load, and that pipes may close."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

HEAVY = ("torch", "triton", "z3", "numpy", "rich", "typer", "pydantic", "attnc.verify")


def modules_after(*words: str) -> set[str]:
    """The modules that a command has loaded when it ends."""
    text = (
        "import sys; from attnc.cli import main; "
        f"status = main({list(words)!r}); "
        "print(chr(10).join(sys.modules), file=sys.stderr); sys.exit(status)"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    return set(done.stderr.split())


@pytest.mark.parametrize(
    "words",
    [
        ("compile", "good.yaml"),
        ("explain", "good.yaml"),
        ("show", "good.yaml"),
        ("show", "good.yaml", "--mask"),
        ("list",),
        ("schema",),
        ("new", "fresh"),
    ],
    ids=lambda words: "_".join(words),
)
def test_nothing_heavy_is_loaded(here: Path, words: tuple[str, ...]) -> None:
    assert modules_after(*words) & set(HEAVY) == set()


def test_import_attnc_is_light(here: Path) -> None:
    text = "import sys, attnc; print(chr(10).join(sys.modules)); assert attnc.__version__"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert {"sympy", "yaml", "jinja2", "networkx", *HEAVY} & set(done.stdout.split()) == set()


def test_public_names_load_on_first_use() -> None:
    import attnc

    assert set(attnc.__all__) <= set(dir(attnc))
    assert all(getattr(attnc, name) is not None for name in attnc.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = attnc.nonsense


def test_a_reader_that_leaves_is_no_error(here: Path) -> None:
    command = f"{sys.executable} -m attnc schema | head -1"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=True)
    assert done.stdout == "{\n"
    assert done.stderr == ""


def test_python_m_attnc_is_attnc(here: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "attnc", "--version"], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith("attnc 0.")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_full_disk_is_told_in_a_line(here: Path) -> None:
    command = f"{sys.executable} -m attnc explain good.yaml > /dev/full"
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("user/cannot-write cannot write the output: No space left")
    assert "Traceback" not in done.stderr


def test_an_interrupt_that_hits_a_finalizer_is_not_lost(here: Path) -> None:
    text = (
        "import signal, time\n"
        "from attnc import cli\n"
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"  # a job of nohup ignores it
        "class Finalized:\n"
        "    def __del__(self):\n"
        "        raise KeyboardInterrupt\n"
        "def main():\n"
        "    Finalized()\n"
        "    for _ in range(600):\n"
        "        time.sleep(0.1)\n"
        "cli.main = main\n"
        "cli.entry()\n"
    )
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (130, "interrupted\n")
