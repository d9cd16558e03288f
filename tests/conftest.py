"""Golden files: few lines, own file, missing means failing; one that no test reads fails the run.

    def test_x(golden): golden(text)      # tests/golden/<module>/<test>.txt

`pytest --update-golden` writes them.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

GOLDEN = Path(__file__).parent / "golden"
LONGEST = 60  # lines; a longer text is no golden test, it is a copy
_read = pytest.StashKey[set[Path]]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write the golden files anew")


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_read] = set()


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Compare a text with the golden file of the test that asks."""
    name = re.sub(r"[^\w.-]+", "_", request.node.name).strip("_")
    path = GOLDEN / request.path.stem / f"{name}.txt"

    def check(text: str) -> None:
        text = text.rstrip("\n") + "\n"
        assert text.count("\n") <= LONGEST, f"a golden text has at most {LONGEST} lines"
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        request.config.stash[_read].add(path)
        assert path.exists(), f"{path} is missing; look at the text, then run --update-golden"
        assert text == path.read_text(encoding="utf-8")

    return check


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Fail a whole run that leaves golden files unread; a run of a few tests cannot know."""
    config = session.config
    worker = getattr(config, "workeroutput", None)
    if worker is not None:  # xdist: hand what this worker read to the one that started it
        worker["golden"] = [str(path) for path in config.stash[_read]]
        return
    if exitstatus != 0 or not _is_whole_run(config):
        return
    unread = set(GOLDEN.rglob("*.txt")) - config.stash[_read]
    if unread:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        listed = ", ".join(str(path.relative_to(GOLDEN)) for path in sorted(unread))
        config.get_terminal_writer().line(f"golden files that no test reads: {listed}", red=True)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: object, error: object) -> None:
    """Collect what an xdist worker has read."""
    output = getattr(node, "workeroutput", {})
    config = node.config  # type: ignore[attr-defined]
    config.stash[_read] |= {Path(path) for path in output.get("golden", ())}


def _is_whole_run(config: pytest.Config) -> bool:
    asked = [arg for arg in config.args if not arg.startswith("-")]
    whole = all(Path(arg).resolve() in (GOLDEN.parent, GOLDEN.parent.parent) for arg in asked)
    marks = config.option.markexpr
    some = config.option.keyword or config.option.collectonly
    return whole and not some and (not marks or marks.startswith("not "))
