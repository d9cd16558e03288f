from __future__ import annotations

from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
GOOD = "heads: {q: 4, kv: 2}\nhead_dim: 64\nmask: causal\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, with one good spec."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT))  # for processes of their own, installed or not
    (tmp_path / "good.yaml").write_text(GOOD)
    return tmp_path
