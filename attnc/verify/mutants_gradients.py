"""Small deliberate faults in the text of the backward kernels, one for each way to go wrong."""

from __future__ import annotations

from attnc.verify.text_mutant import TextMutant, assignment, unguarded


def _fault(name: str, pattern: str, replacement: str) -> TextMutant:
    return TextMutant(f"backward: {name}", pattern, replacement, gradients=True)


M = _fault
GRADIENTS: tuple[TextMutant, ...] = (
    # what is differentiated
    M("delta missing", r"\((d_\w+) - minus_d_lse(?:\[[^\]]+\])?\)", r"\1"),
    M("delta doubled", r"- (minus_d_lse\[)", r"- 2 * \1"),
    M("gradient of lse lost", r"= grad_lse - ", "= -"),
    M("lse in base 2", r"(finite_lse) \* -?1\.4426950408889634", r"\1"),
    M("scale forgotten", assignment("d_[qk]"), r"\1(\2) / scale"),
    M("cap's derivative missing", r" \* \(1 - \((\w+) \* \1\) \* [\d.]+\)", ""),
    M("cap's derivative not squared", r"\(1 - \((\w+) \* \1\)", r"(1 - (\1 * 1)"),
    M("weights in base e", r"( p = )tl\.exp2\(", r"\1tl.exp("),
    M("weights forgotten", r"(d_logits = .+) \* p$", r"\1"),
    # sums
    M("queries: earlier tiles forgotten", r"^( +d_q_sum = tl\.dot\(.+), d_q_sum, ", r"\1, "),
    M("keys: earlier tiles forgotten", r"^( +d_k_sum = tl\.dot\(.+), d_k_sum, ", r"\1, "),
    M("values: earlier tiles forgotten", r"^( +d_v\w* = tl\.dot\(.+), d_v\w*, ", r"\1, "),
    M("a head of the group lost", r"range\(0, \d+ \* (\w+)\)", r"range(0, \1)"),
    M("one head of the group over again", r"^( +h = h_kv \* \d+) \+ member", r"\1"),
    M("a number's rows not apart", r"tl\.cast\(q_block, tl\.int64\) \*", "0 *"),
    M(
        "grad_q unwritten",
        r"^( +tl\.store\(grad_q_base .+, mask=)",
        r"\1(q_idx % 2 == 0)[:, None] & ",
    ),
    M(
        "grad_k unwritten",
        r"^( +tl\.store\(grad_k_base .+, mask=)",
        r"\1(kv_idx % 2 == 0)[:, None] & ",
    ),
    # what is visible
    M("border hidden", r"^( +visible = .*?)<=", r"\1<"),
    M("everything visible", r"tl\.where\(visible, (\w+), 0\)", r"\1"),
    M("lengths exchanged", r"q_idx \+ kv_len - q_len", "q_idx + q_len - kv_len"),
    M("last tile dropped", r"range\((.+), (\S+)\):", r"range(\1, \2 - 1):"),
    M("first query dropped", assignment("q_lo"), r"\1(\2) + 1"),
    M("last key dropped", assignment("kv_hi"), r"\1(\2) - 1"),
    M("a tile too many without a mask", assignment("full_hi"), r"\1(\2) + 1"),
    # memory
    M("unguarded queries", unguarded("q_tile"), r"\1)"),
    M("unguarded gradient of out", unguarded("grad_out_tile"), r"\1)"),
    M("unguarded store", r"^( +tl\.store\(.+), mask=.+\)$", r"\1)"),
    M("key head by remainder", r"h_kv = h // ", "h_kv = h % "),
    M("batch entry forgotten", r"(grad_out_ptr) \+ tl\.cast\(b, tl\.int64\) \*", r"\1 + 0 *"),
    M("tile transposed", r"tl\.trans\((\w+_tile)\)", r"\1"),
    # dropout
    M(
        "random words transposed",
        r"(random_number\(.+?), (\w+\[.+?\]), (\w+\[.+?\])\)",
        r"\1, \3, \2)",
    ),
    M("kept weights not enlarged", r" \* kept_factor\b", ""),
    M("nothing dropped", r"\(d_weights \* kept\)", "d_weights"),
    # tensors
    M("table shifted", r"^( +\w+_index = .+)$", r"\1 + 1"),
    # rows that see nothing
    M(
        "a row that sees nothing is heard",
        r"tl\.where\(\(lse == finite_lse\).*, (grad_out_tile\.to\(tl\.float32\)), 0\)",
        r"\1",
    ),
    M("a sink of no share is heard", r"tl\.where\(p_sink != 0, (d_lse \* p_sink), 0\)", r"\1"),
    M("sink's share lost", assignment("d_sink"), r"\1(\2) * 0.5"),
)
