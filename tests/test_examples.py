"""Every example runs as it stands, in a process of its own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_runs(example: Path, tmp_path: Path) -> None:
    """From a checkout with a relative path on PYTHONPATH, as people start it; without a remark."""
    environment = {**os.environ, "ATTNC_CACHE": str(tmp_path), "PYTHONPATH": "."}
    environment.pop("TRITON_INTERPRET", None)
    done = subprocess.run(
        [sys.executable, str(example)], capture_output=True, text=True, env=environment, cwd=ROOT
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.strip()


def test_there_are_examples() -> None:
    assert len(EXAMPLES) >= 4
