from __future__ import annotations

from pathlib import Path

import pytest

GOOD = "heads: {q: 4, kv: 2}\nhead_dim: 64\nmask: causal\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder to stand in, with one good spec."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "good.yaml").write_text(GOOD)
    return tmp_path
