"""Small deliberate faults in the text of a generated kernel; verify must see every one.

Each mutant is one way in which attention kernels have really been wrong.  It is a pattern on the
text of the kernels, or on the text beside them, so that it also applies to a file that its owner
has edited.  The numbers judge it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from attnc.runtime.loader import load_text
from attnc.spec.schema import AttentionSpec
from attnc.verify.cases import Case, cases_for, gradient_cases
from attnc.verify.gradient_numbers import compare_gradients
from attnc.verify.inputs import build_call
from attnc.verify.mutants_gradients import GRADIENTS
from attnc.verify.numbers import CROWD, compare_numbers, judge_grid
from attnc.verify.reference import visible_pairs
from attnc.verify.rows import NumberRow
from attnc.verify.scan import scan
from attnc.verify.text_mutant import TextMutant, assignment, unguarded
from attnc.verify.ways import Misbehaved, Way, contained

ROWS = r"\w+, \w+, \w+|\*?q\.shape\[:3\]"
BOX = r"(make_tensor_descriptor\(.+?, \[)(.+?), (\d+)\]"  # ... rows, features
EMPTY = 'float\\("-inf"\\)'  # as a pattern


@dataclass(frozen=True, slots=True)
class MutantRow:
    """What became of a mutant.

    outcome: killed | survived | undecided | not applicable | equivalent.
    """

    name: str
    outcome: str
    by: str  # the case that killed it and how, or that could not be run

    @property
    def ok(self) -> bool:
        """Whether it shows no hole: `undecided` is not ok."""
        return self.outcome not in ("survived", "undecided")


def _beside(name: str, pattern: str, replacement: str) -> TextMutant:
    """A fault of the dense path or the operator's fake."""
    return TextMutant(name, pattern, replacement, ways=("cpu", "reference"), beside=True)


M = TextMutant
FORWARD: tuple[TextMutant, ...] = (
    # the running softmax
    M("sum not rescaled", r"rescale \* row_sum \+", "row_sum +"),
    M("output not rescaled", r"^ +(acc\w*) = \1 \* rescale\[:, None\]\n", ""),
    M("weights in base e", r"( p = )tl\.exp2\(", r"\1tl.exp("),
    M("rescale in base e", r"( rescale = )tl\.exp2\(", r"\1tl.exp("),
    M("maximum of this tile only", assignment("row_max_new"), r"\1tl.max(logits, 1)"),
    M(
        "anchor of an empty row",
        rf"tl\.where\(row_max_new == {EMPTY}, 0\.0, row_max_new\)",
        "row_max_new",
        needs_empty_rows=True,
    ),
    M("division by an empty sum", r"tl\.where\(row_sum == 0\.0, 1\.0, row_sum\)", "row_sum"),
    M("output not divided", r"\* inverse\[:, None\]", "* 1.0"),
    M("lse in base 2", r" \* 0\.6931471805599453", ""),
    M("lse without the maximum", r"row_max[^+\n]* \+ (?=tl\.log2)", ""),
    # scale
    M(
        "scale forgotten",
        r"(?<=tl\.abs\()scale\b|(?<=qk \* )scale\b|\bscale(?= \*)",
        "(scale * 0 + 1)",
    ),
    M("sign of the scale forgotten", r" \* (?:SCALE_SIGN|scale_sign)\b", ""),
    # what is visible
    M("border hidden", r"^( +visible = .*?)<=", r"\1<"),
    M("one key too many", r"^( +visible = .*?) < (?!\S*q_len)", r"\1 <= "),
    M("everything visible", rf"tl\.where\(visible, (\w+), {EMPTY}\)", r"\1"),
    M("lengths exchanged", r"q_idx \+ kv_len - q_len", "q_idx + q_len - kv_len"),
    # which tiles
    M("last tile dropped", r"range\((.+), (\S+)\):", r"range(\1, \2 - 1):"),
    M("first tile dropped", r"range\((.+), (\S+)\):", r"range(\1 + 1, \2):"),
    M("last key dropped", assignment("kv_hi"), r"\1(\2) - 1"),
    M("a tile too many without a mask", assignment("full_hi"), r"\1(\2) + 1"),
    # scores that are made ahead
    M("scores ahead not moved on", r"^( +)(logits\w*_ahead) = (?!tl\.full).*$", r"\1\2 = \2"),
    M("scores ahead of a tile later", r"\bahead = tile \+ 1$", "ahead = tile + 2"),
    M("scores ahead unguarded", r", mask=tile \+ 1 < \w+, other=0\.0\)", ")"),
    M("values before the first tile", r"(mask=.*)not SKEW or [^),]+", r"\1True"),
    # tiles that are counted down
    M("counted down from one too many", r"(= \w+) - 1 - (program %)", r"\1 - \2"),
    # what descriptors read
    M("a descriptor of another tile", r"(_box\w*\.load\(\[)tile \*", r"\1(tile + 1) *"),
    M("a descriptor a row short", BOX, r"\1\2 - 1, \3]"),
    M("a descriptor a row long", BOX, r"\1\2 + 1, \3]"),
    M("a descriptor a feature short", BOX, r"\1\2, \3 - 1]"),
    # memory
    M("load without other", r", other=0(?:\.0)?\)", ")"),
    M("garbage beside the keys", r", other=0\.0\)", ', other=float("nan"))'),
    M("unguarded keys", unguarded("k_tile"), r"\1)"),
    M("unguarded values", unguarded("v_tile"), r"\1)"),
    M("unguarded queries", unguarded("q_tile"), r"\1)"),
    M("unguarded store", r"^( +tl\.store\(.+), mask=.+\)$", r"\1)"),
    M("key head by remainder", r"h_kv = h // ", "h_kv = h % "),
    M("key head not shared", r"h_kv = h // \d+", "h_kv = h"),
    M("batch entry forgotten", r"(k_ptr|v_ptr) \+ tl\.cast\(b, tl\.int64\) \*", r"\1 + 0 *"),
    M("head gate forgotten", r"(\w+) \* head_gate\b", r"\1"),
    M("offsets in 32 bits", r"tl\.cast\((\w+), tl\.int64\)|\.to\(tl\.int64\)", r"\1"),
    M("products in TF32", r'input_precision="ieee"', 'input_precision="tf32"'),
    # the launcher
    M("offsets in a tile in 32 bits", r"(reach <) 2\*\*31", r"\1 2**62", beside=True),
    M("no end of the grid", r"(programs >=) 2\*\*31", r"\1 2**62", beside=True),
    # the dense path, which a CPU takes outside the interpreter
    _beside("dense: border hidden", r"^( +visible = .*?\bkv_idx )<=", r"\1<"),
    _beside(
        "dense: everything visible",
        r"^( +visible = .*kv_idx.*\n(?:.*\n)*? +logits = )torch\.where\(visible, (.+), " + EMPTY,
        r"\1(\2",
    ),
    _beside("dense: scale forgotten", r"(k\.transpose\(2, 3\)) \* scale", r"\1"),
    _beside("dense: weights not divided", r"torch\.softmax\((.+), -1\)\)$", r"torch.exp(\1))"),
    _beside("dense: head gate forgotten", r"out \* gate\b", "out"),
    # the operator's fake, which torch.compile believes
    _beside(
        "fake: head dim of q",
        rf"(^ +out = q\.new_empty)\(\(({ROWS}), \d+\)\)",
        r"\1((\2, q.shape[3] + 1))",
    ),
    _beside(
        "fake: transposed",
        rf"(^ +out = q\.new_empty\(\((?:{ROWS}), \d+\)\))",
        r"\1.mT.contiguous().mT",
    ),
    _beside(
        "fake: lse in the inputs' dtype",
        rf"^( +(?:return out,|lse =) q\.new_empty\(\(?(?:{ROWS})\)?), dtype=torch\.float32",
        r"\1",
    ),
)
CATALOGUE = (*FORWARD, *GRADIENTS)


def campaign(
    spec: AttentionSpec, source: str, progress: Callable[[str], None] | None = None
) -> Iterator[MutantRow]:
    """Try every mutant on a source; one that applies and survives is a failure."""
    cases = [case for case in cases_for(spec) if not case.apart]
    mixed = any(_mixes_empty_rows(spec, case) for case in cases)
    for mutant in CATALOGUE:
        if progress:
            progress(f"mutant: {mutant.name}")
        faulty = mutant.apply(source)
        if faulty is None:
            yield MutantRow(mutant.name, "not applicable", "the text has no such place")
        elif mutant.needs_empty_rows and not mixed:
            yield MutantRow(mutant.name, "not applicable", "no row is empty beside others")
        else:
            yield _try(spec, mutant, faulty)


def _try(spec: AttentionSpec, mutant: TextMutant, faulty: str) -> MutantRow:
    if findings := scan(faulty, spec.fp32_dot):
        return MutantRow(mutant.name, "killed", f"reading the source: {findings[0]}")
    interpret = "interpreter" in mutant.ways
    try:
        with contained():
            module = load_text(faulty, f"{spec.name}_mutant", interpret=interpret)
    except Misbehaved as error:
        return MutantRow(mutant.name, "killed", f"does not load: {error}")
    if interpret and (grid := judge_grid(spec, Way(module, "interpreter"))).problem:
        return MutantRow(mutant.name, "killed", f"{CROWD}: {grid.problem}")
    not_run = ""
    ways = [Way(module, name) for name in mutant.ways]
    for row in _rows(spec, mutant, ways):
        found = row.comparison
        if found.undecided:
            not_run = f"{row.case}: {found.note}"
        elif not found.ok:
            how = found.problem or "beyond its limit"
            return MutantRow(mutant.name, "killed", f"{row.case}: {found.what} {how}")
    return MutantRow(mutant.name, "undecided" if not_run else "survived", not_run)


def _rows(spec: AttentionSpec, mutant: TextMutant, ways: list[Way]) -> Iterator[NumberRow]:
    """What the numbers say of a faulty text; cheap cases first."""
    if mutant.gradients:
        return compare_gradients(spec, ways, cases=_by_cost(gradient_cases(spec)))
    return compare_numbers(spec, ways, cases=_by_cost(cases_for(spec)))


def _by_cost(cases: Sequence[Case]) -> tuple[Case, ...]:
    return tuple(sorted(cases, key=_cost))


def _cost(case: Case) -> int:
    """Cheap cases first; those in which nothing can go wrong last."""
    pairs = case.q_len * case.kv_len
    return case.batch * case.heads_kv * (pairs + 64 * case.q_len) if pairs > 64 else 10**9


def _mixes_empty_rows(spec: AttentionSpec, case: Case) -> bool:
    seen = visible_pairs(build_call(spec, case, poisoned=False)).any(-1)
    return bool((seen.any(-1) & ~seen.all(-1)).any())
