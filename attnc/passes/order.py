"""The passes in order, with a line of why beside each."""

from __future__ import annotations

from attnc.passes.bound_tiles import BoundTiles
from attnc.passes.count_within_tiles import CountWithinTiles
from attnc.passes.describe_loads import DescribeLoads
from attnc.passes.drop_aliases import DropAliases
from attnc.passes.drop_implied_bounds import DropImpliedBounds
from attnc.passes.exp_to_exp2 import ExpToExp2
from attnc.passes.fold_scales import FoldScales
from attnc.passes.hide_multiples import HideMultiples
from attnc.passes.hoist_invariants import HoistInvariants
from attnc.passes.join_rounds import JoinRounds
from attnc.passes.lower_reductions import LowerReductions
from attnc.passes.pipeline import Pipeline
from attnc.passes.skew_products import SkewProducts
from attnc.passes.split_axis import SplitAxis
from attnc.passes.split_phases import SplitPhases
from attnc.passes.stream_reductions import StreamReductions
from attnc.passes.turn_grids import TurnGrids
from attnc.passes.unfold_floors import UnfoldFloors
from attnc.passes.widen_indices import WidenIndices

PIPELINE = Pipeline(
    (
        StreamReductions(),  # one loop over the keys: later passes see a single mask and range
        FoldScales(),  # while reductions are declared: one formula to rewrite, not two phases
        ExpToExp2(),
        BoundTiles(inner="k", outer="q"),  # which tiles hold a visible pair, or only such pairs
        BoundTiles(inner="q", outer="k"),  # where a kernel holds keys and walks the queries
        SplitPhases(),  # wholly visible tiles run without mask code
        DropImpliedBounds(),  # what remains of the mask after the range is known
        DropImpliedBounds(inner="q", outer="k"),
        DropAliases(),  # bounds that are other bounds
        UnfoldFloors(),  # after the ranges, which understand blocks as they are written
        LowerReductions(),  # selects, carried values, dots
        HoistInvariants(),  # once formulas stand in the loops that evaluate them
        JoinRounds(),  # once nothing more is moved into rounds
        HideMultiples(),  # once every scalar has its formula
        WidenIndices(),  # integers that may pass 2**31
        CountWithinTiles(),  # once nothing asks any more what a guard says of an index
        SplitAxis(),  # every value over a feature axis is spelled out and can be cut
        DescribeLoads(),  # once features are pieces: each has a descriptor of its own
        TurnGrids(),  # once the ranges are what they stay
        SkewProducts(),  # last: it speaks of a loop's values by name
    )
)
