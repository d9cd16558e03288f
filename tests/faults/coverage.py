"""Which fault of attention kernels has which test here, and which has none, with the reason.

The codes are those of the project's list of faults.  Kinds: A empty rows and lse, B masks, C
scores, D shapes and strides, E offsets and grids, F garbage, L usability; and what else of G, H and
I concerns a call and its gradients.
"""

from __future__ import annotations

ALL = (
    "A01 A03 A04 A06 A07 A08 A10 A11 A13 A14 A16 A17 "
    "B01 B03 B04 B05 B06 B07 B08 B09 B10 B11 B12 B14 B15 B18 B20 B21 B22 B23 B24 B25 B26 B27 B28 "
    "C02 C03 C04 C05 C06 C07 C08 C10 C11 C12 C13 C15 C17 "
    "D02 D03 D04 D05 D06 D07 D08 D09 D10 D12 D13 D15 D16 D17 D18 D19 "
    "E02 E03 E04 E05 E06 F01 F03 F05 F07 F08 L01 L02 L03 L04 L05 "
    "G02 G03 G05 G08 H02 H03 H09 H10 I01 I03 I04 I07 I09"
).split()

TESTED = {
    "A01": "test_empty_rows", "A03": "test_empty_rows", "A04": "test_empty_rows",
    "A06": "test_empty_rows", "A07": "test_empty_rows", "A08": "test_empty_rows",
    "A10": "test_sinks",
    "A11": "test_empty_rows", "A13": "test_empty_rows", "A14": "test_empty_rows",
    "A16": "test_empty_rows", "A17": "test_empty_rows",
    "B01": "test_masks", "B03": "test_masks", "B04": "test_masks", "B05": "test_masks",
    "B06": "test_masks", "B07": "test_masks", "B08": "test_masks", "B09": "test_masks",
    "B10": "test_masks", "B11": "test_masks", "B12": "test_masks", "B14": "test_masks",
    "B15": "test_masks", "B18": "test_masks", "B20": "test_masks", "B21": "test_masks",
    "B22": "test_masks", "B23": "test_masks", "B24": "test_masks", "B25": "test_masks",
    "B26": "test_masks", "B27": "test_masks", "B28": "test_masks",
    "C02": "test_scores", "C03": "test_scores", "C04": "test_scores", "C05": "test_scores",
    "C06": "test_scores", "C07": "test_scores", "C08": "test_scores", "C10": "test_scores",
    "C11": "test_scores", "C12": "test_scores", "C13": "test_sinks", "C15": "test_sinks",
    "C17": "test_dropout", "G02": "test_scores",
    "D02": "test_shapes", "D04": "test_shapes", "D05": "test_shapes", "D06": "test_shapes",
    "D07": "test_shapes", "D08": "test_shapes", "D09": "test_shapes", "D10": "test_shapes",
    "D12": "test_shapes", "D13": "test_shapes", "D15": "test_shapes", "D16": "test_shapes",
    "D17": "test_shapes", "D18": "test_shapes", "D19": "test_shapes",
    "E02": "test_offsets", "E03": "test_offsets", "E04": "test_offsets", "E05": "test_offsets",
    "E06": "test_offsets",
    "F01": "test_garbage", "F03": "test_garbage", "F05": "test_garbage", "F07": "test_garbage",
    "G03": "test_gradients", "G05": "test_gradients", "I03": "test_gradients",
    "I07": "test_gradients",
    "G08": "test_calls", "H02": "test_calls", "H03": "test_calls", "H09": "test_calls",
    "H10": "test_calls",
    "I09": "test_calls", "L01": "test_calls", "L02": "test_calls", "L03": "test_calls",
    "L04": "test_calls", "L05": "test_calls", "I01": "../codegen/test_torch_library",
    "I04": "../codegen/test_training",
}  # fmt: skip

# Entries that are tested for their forward part only, and what is left for a later issue.
PARTLY = {
    "B12": "there are no block lists; another length on the same module is tested",
    "B18": "there are no block lists; a tensor of blocks in the mask is tested",
    "A03": "variable lengths and paged or split caches are not built; kv_len 0 is tested",
    "A04": "the cache is dense, not paged",
    "A06": (
        "attnc has no merge helper yet; that the kernel's empty states are fit for one is tested"
    ),
    "A07": "chunks are given by a tensor of lengths, not by a cache",
    "A16": "grouped heads; variable lengths are not built",
    "D19": "a batch stride past 2**31; an index of cache entries is not built",
    "E02": "strides of rows, heads and batch entries; page tables are not built",
    "E04": "the bias and every operand, forward; verify's far cases hold the gradients",
    "F01": "dense caches; pages and variable lengths are not built",
    "F05": "a tensor of lengths; cumulative lengths are not built",
    "F07": "short sequences by a tensor of lengths; there is no workspace",
}

NOT_HERE = {
    "D03": "variable lengths come with a later issue; `lengths` is refused by name (C17)",
    "F08": "splitting the keys over programs comes with a later issue",
}
