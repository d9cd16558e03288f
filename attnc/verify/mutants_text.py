"""Small deliberate faults in the text of a generated kernel; verify must see every one.

Each mutant is one way in which attention kernels have really been wrong.  It is a pattern on the
text of the kernels, so that it also applies to a file that its owner has edited.  The numbers
judge it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from attnc.runtime.loader import load_text
from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import cases_for
from attnc.verify.numbers import judge

KILLERS = (
    "tails",
    "more queries than keys",
    "sliced",
    "negative scale",
    "huge scores",
    "infinite bias",
)


@dataclass(frozen=True, slots=True)
class TextMutant:
    """A fault: every match of `pattern` inside a kernel becomes `replacement`."""

    name: str
    pattern: str
    replacement: str

    def apply(self, source: str) -> str | None:
        """The faulty text, or None where there is nothing to make faulty."""
        lines = source.splitlines(keepends=True)
        for first, last in reversed(_kernels(source)):
            text = "".join(lines[first:last])
            faulty = re.sub(self.pattern, self.replacement, text, flags=re.MULTILINE)
            lines[first:last] = [faulty]
        changed = "".join(lines)
        return changed if changed != source else None


@dataclass(frozen=True, slots=True)
class MutantRow:
    """What became of a mutant.  outcome: killed | survived | not applicable | equivalent."""

    name: str
    outcome: str
    by: str  # the case that killed it and how


CATALOGUE: tuple[TextMutant, ...] = (
    TextMutant("sum not rescaled", r"^(\s+)(l|total\w*) = \2 \* \w+ \+", r"\1\2 = \2 +"),
    TextMutant(
        "output not rescaled", r"^(\s+)(acc\w*) = \2 \* \w+\[:, None\]( \+|$)", r"\1\2 = \2\3"
    ),
    TextMutant("exp instead of exp2", r"tl\.exp2\(", "tl.exp("),
    TextMutant("diagonal hidden", r"(kv_idx\w*(?:\[[^]]*\])?) <= (q_pos)", r"\1 < \2"),
    TextMutant("garbage for keys outside", r"other=0\.0", "other=float('nan')"),
    TextMutant("last tile dropped", r"range\((.+), (.+)\):", r"range(\1, \2 - 1):"),
    TextMutant("first tile dropped", r"range\((\S+), (.+)\):", r"range(\1 + 1, \2):"),
    TextMutant("wrong key head", r"h_kv = h // GROUP", "h_kv = h % GROUP"),
    TextMutant("scale forgotten", r" \* scale\b", ""),
    TextMutant("lengths exchanged", r"\+ kv_len - q_len", "+ q_len - kv_len"),
    TextMutant("division by an empty sum", r"tl\.where\(l == 0\.0, 0\.0, 1\.0 / l\)", "1.0 / l"),
    TextMutant(
        "stores past the last row", r"mask=q_idx(\[:, None\])? < q_len", "mask=q_idx\\1 < q_len + 1"
    ),
)


def campaign(
    spec: AttentionSpec, source: str, progress: Callable[[str], None] | None = None
) -> Iterator[MutantRow]:
    """Try every mutant on a source; one that applies and survives is a failure."""
    for mutant in CATALOGUE:
        if progress:
            progress(f"mutant: {mutant.name}")
        faulty = mutant.apply(source)
        if faulty is None:
            yield MutantRow(mutant.name, "not applicable", "")
        else:
            yield _try(spec, mutant, faulty)


def _kernels(source: str) -> list[tuple[int, int]]:
    """The lines of every @triton.jit function, in order."""
    return [
        (node.lineno - 1, node.end_lineno or node.lineno)
        for node in ast.parse(source).body
        if isinstance(node, ast.FunctionDef)
        and any(ast.unparse(line).startswith("triton.jit") for line in node.decorator_list)
    ]


def _try(spec: AttentionSpec, mutant: TextMutant, faulty: str) -> MutantRow:
    try:
        module = load_text(faulty, f"{spec.name}_mutant", interpret=True)
    except Exception as error:
        return MutantRow(mutant.name, "killed", f"does not load: {error}")
    cases = sorted(cases_for(spec), key=lambda case: case.name not in KILLERS)
    for case in cases:
        for comparison in judge(spec, module, case):
            if not comparison.ok:
                how = comparison.problem or f"error {comparison.ratio:.1f} times the limit"
                return MutantRow(mutant.name, "killed", f"{case.name}: {comparison.what} {how}")
    return MutantRow(mutant.name, "survived", "")
