"""What a launch of a kernel does: the tiles of each program, FLOPs, and bytes that move.

The tuner's cost model reads this; like `tiles`, it evaluates the loops' own ranges.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from itertools import product
from math import prod

from sympy import Basic

from attnc.explain.evaluate import Number, compile_formula, names_in
from attnc.explain.situation import Situation
from attnc.explain.tiles import LoopRanges
from attnc.ir.nodes import BLOCK_KV, BLOCK_Q, Dot, Formula, Kernel, Let, Load, Loop
from attnc.ir.rebuild import reads_of_value

BYTES = {"f32": 4, "f16": 2, "bf16": 2, "i32": 4, "i64": 8, "i1": 1}
MOST_PROGRAMS = 2**13  # counted one by one

Numbers = dict[str, Number]


@dataclass(frozen=True, slots=True)
class Launch:
    """The work of one launch.

    programs: how many tiles each loop of a program visits, in the order of launch; they come
    `copies` times, one after the other.  tile_flops: products of a tile, as the tile is padded.
    tile_bytes: what a tile's iteration loads.  bytes: every tensor once, the least that can move.
    """

    programs: tuple[tuple[int, ...], ...]
    copies: int
    tile_flops: int
    tile_bytes: int
    bytes: int

    @property
    def tiles(self) -> int:
        """Tiles that all programs visit."""
        return self.copies * sum(map(sum, self.programs))


def launch_of(
    kernel: Kernel,
    situation: Situation,
    block_q: int,
    block_kv: int,
    element_bytes: int,
    last_first: bool = False,
) -> Launch:
    """Count one launch of a READY kernel; block_q, block_kv: rows and keys of a tile.

    last_first: whether the digits that can be turned are.
    """
    numbers: Numbers = {**situation.names(), str(BLOCK_Q): block_q, str(BLOCK_KV): block_kv}
    ranges = LoopRanges(kernel, situation, block_q, block_kv)
    loops = [stmt for stmt in kernel.body if isinstance(stmt, Loop)]
    digits, copies = _digits(kernel, ranges, numbers)
    turned = {str(digit.index) for digit in kernel.grid if digit.turned and last_first}
    body = loops[0].body if loops else ()
    tiles = {axis.name: int(_number(axis.tile, numbers)) for axis in kernel.axes}
    return Launch(
        programs=tuple(
            _tiles(kernel, loops, ranges, numbers | dict(zip(digits, place, strict=True)))
            for place in _places([(digits[name], name in turned) for name in digits])
        ),
        copies=copies,
        tile_flops=sum(_flops(let, let.value, tiles) for let in body if isinstance(let.value, Dot)),
        tile_bytes=sum(
            prod(tiles[axis] for axis in let.axes) * BYTES.get(let.dtype, element_bytes)
            for let in body
            if isinstance(let.value, Load)
        ),
        bytes=sum(
            BYTES.get(buffer.dtype, element_bytes)
            * prod(int(_number(size, numbers)) for size in buffer.sizes)
            for buffer in kernel.buffers
        ),
    )


def _digits(kernel: Kernel, ranges: LoopRanges, numbers: Numbers) -> tuple[dict[str, int], int]:
    """The digits of the grid that decide how many tiles are visited, and how many copies follow."""
    varying: dict[str, int] = {}
    copies = 1
    for digit in kernel.grid:
        name, extent = str(digit.index), int(_number(digit.extent, numbers))
        is_tile = bool({str(BLOCK_Q), str(BLOCK_KV)} & names_in(digit.extent))
        counted = extent if is_tile or _decides(kernel, ranges, name) else 1
        counted = max(1, min(counted, MOST_PROGRAMS // max(1, prod(varying.values()))))
        varying[name] = min(counted, extent)
        copies *= -(-extent // counted)
    return varying, copies


def _decides(kernel: Kernel, ranges: LoopRanges, name: str) -> bool:
    """Whether a range reads a digit, itself or through what a round begins with."""
    told = {name}
    for stmt in kernel.body:
        for let in stmt.rounds.lets if isinstance(stmt, Loop) and stmt.rounds else ():
            told |= {let.name} if told & reads_of_value(let.value) else set()
    return any(ranges.depends_on(one) for one in told)


def _places(digits: list[tuple[int, bool]]) -> Iterator[tuple[int, ...]]:
    """Every value of the digits (an extent, and whether it runs down), the first one fastest."""
    ranges = [range(extent)[:: -1 if down else 1] for extent, down in digits]
    return (place[::-1] for place in product(*reversed(ranges)))


def _tiles(
    kernel: Kernel, loops: list[Loop], ranges: LoopRanges, numbers: Numbers
) -> tuple[int, ...]:
    """Tiles of each loop of one program, over all of its rounds."""
    lets = [stmt for stmt in kernel.body if isinstance(stmt, Let)]
    numbers = _with_scalars(lets, ranges, numbers)
    return tuple(
        sum(times * _visited(loop, loops, ranges, values) for times, values in turns)
        for loop in loops
        for turns in [_turns(loop, ranges, numbers)]
    )


def _turns(loop: Loop, ranges: LoopRanges, numbers: Numbers) -> list[tuple[int, Numbers]]:
    """The rounds of a loop that differ in what they visit, and how often each is walked."""
    if loop.rounds is None:
        return [(1, numbers)]
    count = int(_number(loop.rounds.count, numbers))
    index = str(loop.rounds.index)
    changed = {index, *(let.name for let in loop.rounds.lets)}
    differ = any(ranges.depends_on(name) for name in changed)
    turns = [numbers | {index: number} for number in range(count if differ else min(1, count))]
    times = 1 if differ else count
    return [(times, _with_scalars(loop.rounds.lets, ranges, turn)) for turn in turns]


def _with_scalars(lets: Iterable[Let], ranges: LoopRanges, numbers: Numbers) -> Numbers:
    """Add the lets that are one number each, as far as what they name is known."""
    found = dict(numbers)
    for let in lets:
        match let.value:
            case Formula(expr) if not let.axes and names_in(expr) <= found.keys():
                found[let.name] = _number(expr, found)
            case Load(buffer, index, _) if not let.axes and buffer in ranges.situation.tensors:
                places = [int(_number(one, found)) for one in index]
                found[let.name] = ranges.situation.read(buffer, *places)
    return found


def _visited(loop: Loop, loops: list[Loop], ranges: LoopRanges, values: Numbers) -> int:
    others = {name: int(value) for name, value in values.items() if name not in ("b", "h")}
    b, h, tile = (int(values.get(name, 0)) for name in ("b", "h", ranges.digit))
    found = ranges.at(b, h, tile, **others)
    first = sum(len(one.pieces) for one in loops[: loops.index(loop)])
    return sum(one.tiles for one in found[first : first + len(loop.pieces)])


def _flops(let: Let, dot: Dot, tiles: Mapping[str, int]) -> int:
    return 2 * prod(tiles[axis] for axis in {*let.axes, dot.over})


def _number(formula: Basic, numbers: Numbers) -> Number:
    function, names = _compiled(formula)
    return function(*(numbers[name] for name in names))


@cache
def _compiled(formula: Basic) -> tuple[Callable[..., Number], tuple[str, ...]]:
    names = tuple(sorted(names_in(formula)))
    return compile_formula(formula, names), names
