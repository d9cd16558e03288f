"""Every wrong spec gives its whole message, within a second.

The messages stand in `tests/spec/messages/NAME.txt`.  `ATTNC_WRITE_MESSAGES=1 pytest` writes them
anew, for a person to read through; a message without a file fails.
"""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from attnc.errors import AttncError, SpecErrors
from attnc.spec import parse_spec
from tests.spec.wrong_specs import LARGE, WRONG

MESSAGES = Path(__file__).parent / "messages"
ALL = WRONG | LARGE


@pytest.mark.parametrize("name", sorted(ALL))
def test_message_is_whole(name: str) -> None:
    started = time.process_time()
    with pytest.raises(SpecErrors) as caught:
        parse_spec(ALL[name], "a.yaml")
    spent = time.process_time() - started
    said = str(caught.value) + "\n"
    kept = MESSAGES / f"{name}.txt"
    if os.environ.get("ATTNC_WRITE_MESSAGES"):
        kept.write_text(said)
    assert said == kept.read_text()
    assert spent < 1.0


def test_every_message_is_tested() -> None:
    assert {path.stem for path in MESSAGES.iterdir()} == set(ALL)


def test_there_are_enough() -> None:
    assert len(ALL) >= 45


@pytest.mark.parametrize("name", sorted(ALL))
def test_carets_stand_under_the_mistake(name: str) -> None:
    with pytest.raises(SpecErrors) as caught:
        parse_spec(ALL[name], "a.yaml")
    for error in caught.value.errors:
        span = error.span
        assert span.text == ALL[name].split("\n")[span.line - 1]
        assert 1 <= span.column < span.end <= len(span.text) + 2
        assert isinstance(error, AttncError)


def test_all_mistakes_are_gathered() -> None:
    text = "heads: 0\nhead_dim: 64\nmaks: causal\nscore: tahn(score)\nmask: casual\ndtype: int8\n"
    with pytest.raises(SpecErrors) as caught:
        parse_spec(text.replace("heads: 0", "heads: 8"), "a.yaml")
    codes = [error.code for error in caught.value.errors]
    assert codes == [
        "spec/unknown-key",
        "spec/unknown-function",
        "spec/unknown-name",
        "spec/bad-value",
    ]
