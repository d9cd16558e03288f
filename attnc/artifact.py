"""What the corridor ends in, where its templates lie, and how files are written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class GeneratedModule:
    """One generated Python file: `source` is its whole text."""

    name: str
    source: str

    @property
    def filename(self) -> str:
        """Name the file that holds it."""
        return f"{self.name}.py"


def template_folder() -> Path:
    """Find the Jinja templates: inside an installed package, at the top of a checkout."""
    here = Path(__file__).parent
    packaged = here / "_templates"
    return packaged if packaged.is_dir() else here.parent / "templates"


def write_all(files: Mapping[Path, str]) -> None:
    """Write every file or none of them; a reader sees the old text or the new, never half of one.

    Raises: OSError when a folder cannot be made or a file cannot be written.
    """
    staged: dict[Path, Path] = {}
    try:
        for path, text in files.items():
            staged[path] = _stage(path, text)
        for path, temporary in staged.items():
            os.replace(temporary, path)
    finally:
        for temporary in staged.values():
            with suppress(FileNotFoundError):
                temporary.unlink()


def _stage(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8", newline="\n") as file:
            file.write(text)
        os.chmod(name, _mode(path))
    except OSError:
        Path(name).unlink()
        raise
    return Path(name)


def _mode(path: Path) -> int:
    """Keep an existing file's mode, else use what the umask gives: mkstemp's is private."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
