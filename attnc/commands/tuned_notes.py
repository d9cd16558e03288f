"""What a compile says of the schedules that stand beside a spec."""

from __future__ import annotations

from attnc.driver import Compilation


def tuned_note(made: Compilation) -> str:
    """Whose schedules the file has; empty where they are the rule's.

    It says so where they were found for kernels of another text, or speak of kernels that are not
    there: they are taken all the same, for a schedule is never wrong, only slower than another.
    """
    tuned = made.spec.tuned
    if tuned is None:
        return ""
    from attnc.verify.source_parts import kernels_hash

    names = {kernel.name for kernel in made.program.kernels}
    strange = sorted({row.kernel for row in tuned.rows} - names)
    text = kernels_hash(made.module.source)
    older = sorted({row.target for row in tuned.rows if row.kernels not in ("", text)})
    notes = ["tuned schedules"]
    if older:
        notes.append(f"those of {', '.join(older)} were found for an earlier text of the kernels")
    if strange:
        notes.append(f"those of {', '.join(strange)} are for kernels that are not there")
    return "; ".join(notes)
