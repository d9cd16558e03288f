"""Which names a user may give: identifiers that Python, formulas and generated code leave free."""

from __future__ import annotations

import functools
import keyword
import re
import sys
from collections.abc import Iterable

from attnc.spec import mistakes
from attnc.spec.arithmetic import EXTREMES, FUNCTIONS
from attnc.spec.blocks import BLOCKS
from attnc.spec.yaml_reader import Scalar

MAX_NAME = 60

_FORMULA_WORDS = frozenset(
    """
    b h h_kv q_idx kv_idx q_len kv_len q_pos d score inf nan true false True False None where
    top_left bottom_right none auto batch heads kv_heads
    """.split()
) | {*FUNCTIONS, *EXTREMES, *BLOCKS}
_GENERATED_WORDS = frozenset(  # what the generated module calls its own things, and what it calls
    """
    torch triton tl math dataclasses typing os sys warnings annotations functools collections
    q k v out lse scale schedule return_aux head_gate sink aux Aux attention reference attnc
    self cls device dtype stream grid launch max_score entropy key_mass dropout seed grad forward
    dropout_p dropout_seed dropout_cutoff dropout_factor has_dropout_seed
    backward m l acc
    abs all any bool dict enumerate eval exec float getattr hash id int isinstance len list map
    object open print property range repr reversed round set setattr slice sorted str sum super
    tuple type zip compile input next iter callable vars format filter
    """.split()
)
_GENERATED_LOCALS = (  # what its functions call their values, with a number behind it at times
    """
    p qk acc out ungated logits anchor rescale inverse visible gated gate distance unit
    factor scale_sign row_max row_max_new row_sum tile_max tile_sum row_term key_term tile_term
    head_term call_term tile step steps full_lo full_hi tile_lo tile_hi whole_lo whole_hi kv_lo
    kv_hi kv_every_lo kv_every_hi program q_blocks q_block q_first q_end q_from q_to
    q_partial_from q_partial_to
    q_in_tile kv_in_tile kv_first floor_div floor_mod real_mod real_floor whole_power whole_exp
    base_exp root_power element real seen empty weights results
    own asked usual block_q block_kv warps stages programs reach upcast name tensor features
    length dtypes operator launch_forward default_schedule contextlib BLOCK_Q BLOCK_KV INDEX PRECISE
    tile_of tiles launch_backward backward_operator backward_rows backward_q backward_kv wanted
    is_wanted operand operands found gradient gradients names given varied pull ctx refused inputs
    output keep tensors number results closed member kv_block kv_blocks kv_end q_lo q_hi kernel turn
    own_first n_block n_blocks n_idx n_first n_in_tile terms slot picked pick places passed_on
    rounded skew SKEW tma TMA last_first LAST_FIRST CHOICES aligned bytes_of
    ahead step_ahead logits_ahead score_ahead kv_first_ahead kv_idx_ahead allowed
    probability blind cutoff kept kept_factor largest log_row_sum random_number
    SCALE_SIGN DTYPES FIELDS KERNELS GRADIENTS INTERPRETED INTERPRETER_UPCASTS_BF16 LONGEST
    SCHEDULES SPEC_PATH KEEP is_asked
    ArithmeticError RuntimeError TypeError ValueError NotImplementedError Ellipsis
    num_warps num_stages num_ctas debug instrumentation_mode
    """.split()
)
_OF_TENSOR = r"(?:base|offsets|step|tile|row|key|here|index|box)(?:_\d+)?"
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]*", re.ASCII)


def check_name(key: Scalar, what: str) -> None:
    """Raise BadName when a declared param or tensor cannot be called so."""
    if problem := _declared_problem(key.value):
        advice = f"choose another name, for example my_{what}"
        raise mistakes.BadName(key.span, name=key.value, what=what, problem=problem, advice=advice)


def _declared_problem(name: str) -> str | None:
    if problem := _identifier_problem(name):
        return problem
    if name in _FORMULA_WORDS:
        return "formulas use this word already"
    if name in _GENERATED_WORDS or _generated_form().fullmatch(name):
        return "generated code uses this word already"
    return None


@functools.cache  # a spec that declares nothing need not wait for it
def _generated_form() -> re.Pattern[str]:
    return re.compile(
        rf"(?:{'|'.join(_GENERATED_LOCALS)})(?:_\d+)?|[de]\d*_(?:idx|in_tile)"
        rf"|(?:d|grad|HAS|entropy|minus_d|live_grad|slope_of|forward|backward)_\w+|finite_lse\w*"
        rf"|(?:q|k|v|out|ungated|lse|max_score|key_mass|head_gate|sink)_{_OF_TENSOR}|\w+_(?:visible|tensor)|.*(?:_ptr|_strides?(?:_\w+)?|__.*)"
    )


def derived_from(name: str, tensors: Iterable[str]) -> str | None:
    """Find the tensor from whose name generated code makes this one, such as bias_row of bias."""
    return next((one for one in tensors if re.fullmatch(f"{one}_{_OF_TENSOR}", name)), None)


def spec_name_problem(name: str) -> str | None:
    """Say why a spec cannot be called so, or None; its kernel becomes a module of this name."""
    if problem := _identifier_problem(name):
        return problem
    if name in sys.stdlib_module_names or name in ("torch", "triton", "numpy", "attnc"):
        return "a Python module is called so, which the generated file would hide"
    return None


def _identifier_problem(name: str) -> str | None:
    if not _IDENTIFIER.fullmatch(name):
        return "a name is a letter, then letters, digits and _ (ASCII)"
    if len(name) > MAX_NAME:
        return f"a name has at most {MAX_NAME} characters"
    if keyword.iskeyword(name) or keyword.issoftkeyword(name):
        return "it is a Python keyword"
    return None
