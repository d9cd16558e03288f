"""Draw the mask of a spec as text: who sees whom, how many, and in tiles of which kind."""

from __future__ import annotations

from dataclasses import dataclass

from attnc.explain.masks import mask_rows, valued
from attnc.explain.situation import Situation, example_rule
from attnc.explain.tiles import TileCount, Visit
from attnc.spec.schema import AttentionSpec

POLARITY = (
    "rows are queries, columns are keys; '#' = visible (the query attends to the key), '.' = hidden"
)
LARGEST = 96  # rows or columns of a picture
CLASSES = {"empty": "skipped", "mixed": "visited with the mask", "full": "visited without a mask"}


@dataclass(frozen=True, slots=True)
class Picture:
    """The mask at one batch entry and head: a row of booleans for each query."""

    rows: tuple[tuple[bool, ...], ...]
    q_len: int
    kv_len: int
    head: int
    examples: tuple[str, ...] = ()

    @property
    def visible(self) -> tuple[int, ...]:
        """Keys that each query sees."""
        return tuple(sum(row) for row in self.rows)

    def tile(self, i: int, j: int, block_q: int, block_kv: int) -> str:
        """The class of a tile: empty, mixed or full, over positions that exist."""
        rows = self.rows[i * block_q : (i + 1) * block_q]
        cells = [cell for row in rows for cell in row[j * block_kv : (j + 1) * block_kv]]
        return "full" if all(cells) else "mixed" if any(cells) else "empty"

    def tiles(self, block_q: int, block_kv: int) -> list[list[str]]:
        """The classes of all tiles, a list for each row of tiles."""
        down, across = -(-self.q_len // block_q), -(-self.kv_len // block_kv)
        return [[self.tile(i, j, block_q, block_kv) for j in range(across)] for i in range(down)]


def draw(spec: AttentionSpec, situation: Situation, head: int = 0) -> Picture:
    """Evaluate the whole mask at one head: exact, so for small sizes only."""
    visible = mask_rows(spec, situation)
    with valued(spec, "mask", situation):
        rows = tuple(tuple(map(bool, visible(0, head, i))) for i in range(situation.q_len))
    named = {str(symbol) for symbol in spec.mask.free_symbols}
    examples = tuple(example_rule(tensor) for tensor in spec.tensors if tensor.name in named)
    return Picture(rows, situation.q_len, situation.kv_len, head, examples)


def picture_text(picture: Picture, block_q: int = 0, block_kv: int = 0) -> str:
    """Print a picture with the count of visible keys beside each row, and its tiles below."""
    lines = [f"mask at {picture.q_len} queries x {picture.kv_len} keys, head {picture.head}"]
    lines.append(POLARITY)
    lines += [f"drawn with example contents, {rule}" for rule in picture.examples]
    lines += _ruler(picture.kv_len)
    for i, row in enumerate(picture.rows):
        cells = "".join("#" if cell else "." for cell in row)
        lines.append(f"{i:>5} {cells} {sum(row):>5}{'  sees nothing' if not any(row) else ''}")
    total = picture.q_len * picture.kv_len
    seen = sum(picture.visible)
    lines.append(f"      {seen} of {total} pairs visible{_percent(seen, total)}")
    if block_q and block_kv:
        lines += _tile_lines(picture, block_q, block_kv)
    return "\n".join(lines)


def _percent(part: int, whole: int) -> str:
    return f" ({100 * part / whole:.1f}%)" if whole else ""


def _ruler(columns: int) -> list[str]:
    tens = "".join(str(j // 10 % 10) if j % 10 == 0 else " " for j in range(columns))
    return [f"      {tens} visible", "      " + "".join(str(j % 10) for j in range(columns))]


def _tile_lines(picture: Picture, block_q: int, block_kv: int) -> list[str]:
    marks = {"empty": ".", "mixed": "+", "full": "#"}
    legend = ", ".join(f"'{marks[kind]}' = {kind}: {what}" for kind, what in CLASSES.items())
    lines = [f"tiles of {block_q} x {block_kv}; {legend}"]
    for i, row in enumerate(picture.tiles(block_q, block_kv)):
        lines.append(f"{i:>5} {''.join(marks[kind] for kind in row)}")
    return lines


def difference_text(first: Picture, second: Picture) -> str:
    """Print where two masks differ: '+' only the second sees, '-' only the first."""
    marks = {(True, True): "#", (False, False): ".", (True, False): "-", (False, True): "+"}
    lines = ["'#' = both see, '.' = neither, '-' = only the first, '+' = only the second"]
    count = 0
    for i, (one, other) in enumerate(zip(first.rows, second.rows, strict=True)):
        lines.append(f"{i:>5} " + "".join(marks[pair] for pair in zip(one, other, strict=True)))
        count += sum(a != b for a, b in zip(one, other, strict=True))
    lines.append(f"      {count} of {first.q_len * first.kv_len} pairs differ")
    return "\n".join(lines)


def tile_map(tiles: TileCount, across: int, rows: int = 16, columns: int = 64) -> list[str]:
    """Draw which key tiles each query tile visits, from the loop ranges: at any length.

    across: key tiles of a row.
    """
    first = [v for v in tiles.visits if (v.b, v.h) == (0, 0)]
    if not first or not across:
        return []
    drawn, stride = first[:: -(-len(first) // rows)], -(-across // columns)
    step = drawn[-1].q_tile // (len(drawn) - 1) if len(drawn) > 1 else 1
    lines = [f"query tiles down ({_every(step)}), key tiles across ({_every(stride)})"]
    for visit in drawn:
        cells = "".join(_cell(visit, j, j + stride) for j in range(0, across, stride))
        lines.append(f"{visit.q_tile:>5} {cells}")
    return lines


def _every(step: int) -> str:
    return "each drawn" if step == 1 else f"one in {step} drawn"


def _cell(visit: Visit, start: int, stop: int) -> str:
    """'#' where all tiles are visited without a mask, '.' where none is visited, else '+'."""
    counts = {True: 0, False: 0}
    for one in visit.ranges:
        counts[one.masked] += max(0, min(one.stop, stop) - max(one.start, start))
    if counts[True]:
        return "+"
    return "#" if counts[False] else "."
