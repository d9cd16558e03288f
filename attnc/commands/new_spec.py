"""`attnc new`: a commented spec to start from."""

from __future__ import annotations

import json
from argparse import Namespace
from pathlib import Path

from attnc.errors import UserError
from attnc.spec.names import spec_name_problem

STARTER = """\
# An attention variant for attnc.  `attnc compile {file}` writes the kernel;
# `attnc schema` prints what an editor needs to complete and check this file.
name: {name}
doc: one line that says what this is

heads: {{q: 8, kv: 2}}       # kv == q: multi-head; kv == 1: multi-query; between: grouped
head_dim: 128              # or {{qk: 192, v: 128}}; any positive size
dtype: bf16                # nominal; the kernel takes fp16, bf16 and fp32

# Formulas may name b, h, h_kv, q_idx, kv_idx, q_pos, q_len, kv_len, d, score, and the blocks that
# `attnc list blocks` shows.  q_pos = q_idx + kv_len - q_len: the last query stands at the last key.
# scale: 1/sqrt(d)         # the default
# score: softcap(score, 50)
mask: causal               # & sliding_window(4096)
outputs: [lse]             # leave out when only `out` is wanted

# params:                  # run-time numbers that formulas may name
#   width: {{type: int, default: 4096}}
# tensors:                 # run-time tensors that formulas may index
#   bias: {{shape: [heads, q_len, kv_len], dtype: fp32}}

# Where attnc decides what to keep and which schedule; the kernel is right at every size.
sizes: {{batch: 1, q_len: 4096, kv_len: 4096}}
"""


class BadName(UserError):
    """Report a name that no spec can have."""

    code = "user/bad-name"
    message = "{name!r} cannot name a spec: {problem}"
    help = "use letters, digits and underscores, a letter first"


class AlreadyThere(UserError):
    """Report a file that would be overwritten."""

    code = "user/already-there"
    message = "{path} exists already"
    help = "choose another name, or remove the file"


class CannotWrite(UserError):
    """Report a place that cannot be written."""

    code = "user/cannot-write"
    message = "cannot write {path}: {problem}"


def run(options: Namespace) -> int:
    """Write NAME.yaml, unless it exists."""
    path = Path(f"{options.name.removesuffix('.yaml')}.yaml")
    if problem := spec_name_problem(path.stem):
        raise BadName(name=path.stem, problem=problem)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(STARTER.format(name=path.stem, file=path.name))
    except FileExistsError:
        raise AlreadyThere(path=path) from None
    except OSError as error:
        raise CannotWrite(path=path, problem=error.strerror) from None
    print(json.dumps({"file": str(path)}) if options.json else f"wrote {path}")
    return 0
