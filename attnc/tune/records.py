"""What was found out about schedules, kept in the user's cache folder so that it is asked once.

A record belongs to a text of kernels, a device, versions and sizes; all of them are its key, and
stand in it.  It is JSON that a person may read and edit.  It is replaced whole, so that of several
processes the last one's record stays, never half of two; what cannot be read is made again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from attnc.artifact import write_all
from attnc.runtime.loader import cache_folder
from attnc.tune.choose import Candidate

FORMAT = 1


@dataclass(frozen=True, slots=True)
class Record:
    """The key, and every candidate of every kernel."""

    key: Mapping[str, Any]
    candidates: tuple[Candidate, ...]

    def of(self, kernel: str) -> tuple[Candidate, ...]:
        """The candidates of a kernel."""
        return tuple(one for one in self.candidates if one.kernel == kernel)


def record_path(key: Mapping[str, Any], folder: Path | None = None) -> Path:
    """Where the record of a key lies."""
    text = json.dumps(key, sort_keys=True)
    digest = hashlib.sha256(text.encode()).hexdigest()[:16]
    place = folder or cache_folder() / "tune"
    return place / f"{key['name']}.{key['device']}.{digest}.json"


def save(record: Record, path: Path) -> None:
    """Write a record whole or not at all.

    Raises: OSError.
    """
    plain = {
        "format": FORMAT,
        "key": dict(record.key),
        "candidates": [asdict(one) | {"schedule": dict(one.schedule)} for one in record.candidates],
    }
    write_all({path: json.dumps(plain, indent=1) + "\n"})


def load(key: Mapping[str, Any], path: Path) -> Record | None:
    """The record of a key; None where there is none, or none that can be understood."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        if plain["format"] != FORMAT or plain["key"] != dict(key):
            return None
        return Record(key, tuple(_candidate(one) for one in plain["candidates"]))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None  # missing, cut short or edited beyond recognition: it is made again


def _candidate(plain: dict[str, Any]) -> Candidate:
    schedule = tuple(plain.pop("schedule").items())
    found = Candidate(**plain, schedule=schedule)
    numbers = [found.predicted, *dict(found.schedule).values()]
    numbers += [] if found.measured is None else [found.measured]
    if not all(isinstance(number, int | float) and number >= 0 for number in numbers):
        raise ValueError("a number is none")
    return found
