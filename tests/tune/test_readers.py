"""The readers of machine code, on listings short enough to check by eye."""

from __future__ import annotations

from attnc.tune.amdgcn import kind_of, parse_amdgcn
from attnc.tune.mix import name_loops
from attnc.tune.sass import parse_sass
from attnc.tune.ttir import masked_loads_without_other

# A loop without a mask, a loop with one, and a wait that was moved behind the end of the program.
SASS = """
        /*0000*/                   MOV R1, c[0x0][0x28] ;
.L_x_0:
        /*0010*/                   HMMA.16816.F32 R4, R8, R10, R4 ;
        /*0020*/                   MUFU.EX2 R3, R4 ;
        /*0030*/              @!P0 BRA `(.L_x_4) ;
.L_x_1:
        /*0040*/                   FFMA R5, R3, R2, R5 ;
        /*0050*/              @P1  BRA `(.L_x_0) ;
.L_x_2:
        /*0060*/                   ISETP.GT.AND P2, PT, R6, R7, PT ;
        /*0070*/                   FSEL R4, R4, -INF , P2 ;
        /*0080*/                   HMMA.16816.F32 R4, R8, R10, R4 ;
        /*0090*/                   MUFU.EX2 R3, R4 ;
        /*00a0*/               @P3 BRA `(.L_x_3) ;
        /*00b0*/                   BRA `(.L_x_2) ;
.L_x_3:
        /*00c0*/                   MUFU.RCP R9, R5 ;
        /*00d0*/                   STL [R1], R9 ;
        /*00e0*/                   EXIT ;
.L_x_4:
        /*00f0*/                   SYNCS.PHASECHK.TRANS64.TRYWAIT P0, [R2] ;
        /*0100*/              @!P0 BRA `(.L_x_4) ;
        /*0110*/                   BRA `(.L_x_1) ;
"""

AMDGCN = """
kernel:
; %bb.0:
	s_load_dwordx2 s[0:1], s[4:5], 0x0
	s_branch .LBB0_2
.LBB0_1:                                ;   in Loop: Header=BB0_2 Depth=1
	v_mul_f32_e32 v1, v1, v2
	s_cbranch_scc0 .LBB0_3
.LBB0_2:                                ; =>This Inner Loop Header: Depth=1
	v_mfma_f32_32x32x8_f16 a[0:15], v[0:1], v[2:3], a[0:15]
	v_exp_f32_e32 v1, v1
	ds_read_b128 v[4:7], v8
	v_cndmask_b32_e32 v1, v2, v3, vcc
	s_branch .LBB0_1
.LBB0_3:
	v_rcp_f32_e32 v3, v1
.LBB0_4:                                ; %.lr.ph1
                                        ; =>This Inner Loop Header: Depth=1
	v_exp_f32_e32 v1, v1
	s_cbranch_scc1 .LBB0_4
; %bb.5:
	v_rcp_f32_e32 v1, v1
	s_endpgm
    .vgpr_count:     194
    .vgpr_spill_count: 7
"""


def test_sass_loops_are_found_and_waits_are_not() -> None:
    code = parse_sass(SASS, registers=40)
    loops = code.hot_loops()
    assert [[one.opcode for one in body] for body in loops] == [
        ["HMMA", "MUFU", "BRA", "FFMA", "BRA"],
        ["ISETP", "FSEL", "HMMA", "MUFU", "BRA", "BRA"],
    ]
    assert code.spills == 1
    assert code.matrix_instructions() == ["HMMA.16816.F32"] * 2


def test_loop_mix_counts_every_instruction_once() -> None:
    bodies = [[one.kind for one in body] for body in parse_sass(SASS).hot_loops()]
    unmasked, masked = name_loops(bodies)
    assert (unmasked.phase, masked.phase) == ("unmasked", "masked")
    assert [loop.total for loop in (unmasked, masked)] == [5, 6]
    assert unmasked.count("compare") == unmasked.count("select") == 0
    assert masked.count("compare") == masked.count("select") == masked.count("exp2") == 1
    assert name_loops(bodies[:1])[0].phase == "only"


def test_amd_loops_need_not_stand_together() -> None:
    code = parse_amdgcn(AMDGCN)
    assert (code.registers, code.spills) == (194, 7)
    loop, second = code.hot_loops()
    assert second == ("v_exp_f32_e32", "s_cbranch_scc1")
    assert sorted(kind_of(opcode) for opcode in loop) == sorted(
        ["fma", "integer", "mma", "exp2", "shared load", "select", "integer"]
    )
    assert code.matrix_instructions() == ["v_mfma_f32_32x32x8_f16"]


def test_masked_loads_need_something_to_give() -> None:
    ttir = """
      %a = tt.load %p : tensor<64x!tt.ptr<f16>>
      %b = tt.load %p, %mask, %zero : tensor<64x!tt.ptr<f16>>
      %c_7 = tt.load %p, %mask : tensor<64x!tt.ptr<f16>>
      %d = tt.load %p#1, %mask {cache = 1 : i32} : tensor<64x!tt.ptr<f16>>
    """
    assert list(masked_loads_without_other(ttir)) == [
        "TTIR line 4: %c_7 is a masked load without `other`",
        "TTIR line 5: %d is a masked load without `other`",
    ]
