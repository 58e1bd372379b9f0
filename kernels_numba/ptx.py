"""Single instructions that numba.cuda has no name for, each with a Python twin that the simulator runs. Knows no format.

A *word* is 32 bits in an int32 (a non-negative Python int in a twin): take it apart with `bits` and `byte`, which are unsigned and
signed, never with >>. Loads and stores take addresses. Loads are read-only for the whole kernel (`ld.global.nc`): never
load what the same launch stores. Instructions that a warp runs together (shuffle, mma, ldmatrix) stand in block-uniform control flow.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types

from kernels_numba import ptx_twins as twins
from kernels_numba.device import SIMULATED

_I8, _I16, _I32, _I64, _F32 = ir.IntType(8), ir.IntType(16), ir.IntType(32), ir.IntType(64), ir.FloatType()
_KINDS: dict[str, tuple[Any, Any]] = {"i32": (types.int32, _I32), "i64": (types.int64, _I64), "f32": (types.float32, _F32)}
_Emit = Callable[..., Any]


def _instruction(result: str, params: str, twin: Any, emit: _Emit) -> Any:
    """An intrinsic with a fixed signature. `result` is a kind, "void", or "4 x i32" for a tuple (emit gives a list)."""
    if SIMULATED:
        return twin
    from numba.cuda.extending import intrinsic

    kinds = params.split()

    def typing(typingctx: Any, *args: Any) -> Any:
        signature = _result_type(result)(*(_KINDS[k][0] for k in kinds))

        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            got = emit(builder, *values)
            if result == "void":
                return context.get_dummy_value()
            return context.make_tuple(builder, sig.return_type, got) if " x " in result else got

        return signature, codegen

    positional = inspect.Parameter.POSITIONAL_OR_KEYWORD
    names = ["typingctx", *(f"a{i}" for i in range(len(kinds)))]
    typing.__signature__ = inspect.Signature([inspect.Parameter(n, positional) for n in names])  # type: ignore[attr-defined]
    return intrinsic(typing)


def _result_type(result: str) -> Any:
    if result == "void":
        return types.void
    if " x " in result:
        count, kind = result.split(" x ")
        return types.UniTuple(_KINDS[kind][0], int(count))  # type: ignore[no-untyped-call]
    return _KINDS[result][0]


def _asm(text: str, result: str, params: str, twin: Any, effect: bool = False) -> Any:
    """One line of PTX; operands $0.. are the results, then the parameters."""
    kinds = params.split()
    letters = {"i32": "r", "i64": "l", "f32": "f"}
    count, kind = (int(result.split(" x ")[0]), result.split(" x ")[1]) if " x " in result else (1, result)
    outs = [] if result == "void" else ["=" + letters[kind]] * count
    constraints = ",".join(outs + [letters[k] for k in kinds] + (["~{memory}"] if effect else []))

    def emit(builder: Any, *values: Any) -> Any:
        returned: Any = ir.VoidType() if result == "void" else _KINDS[kind][1]
        if count > 1:
            returned = ir.LiteralStructType([returned] * count)
        function = ir.FunctionType(returned, [_KINDS[k][1] for k in kinds])
        got = builder.call(ir.InlineAsm(function, text, constraints, side_effect=effect), values)
        return [builder.extract_value(got, i) for i in range(count)] if count > 1 else got

    return _instruction(result, params, twin, emit)


def _load(kind: Any, width: int, read_only: bool = True) -> _Emit:
    """`width` values of an LLVM type at an address; small integers come back zero-extended."""
    whole = ir.VectorType(kind, width) if width > 1 else kind

    def emit(builder: Any, at: Any) -> Any:
        value = builder.load(builder.inttoptr(at, whole.as_pointer(1)), align=_size(kind) * width)
        if read_only:
            value.set_metadata("invariant.load", builder.module.add_metadata([]))
        if width > 1:
            return [builder.extract_element(value, _I32(i)) for i in range(width)]
        return builder.zext(value, _I32) if kind in (_I8, _I16) else value

    return emit


def _gather(width: int) -> _Emit:
    """Words at a generic address: of device memory, or of this block's shared memory."""
    whole = ir.VectorType(_I32, width) if width > 1 else _I32

    def emit(builder: Any, at: Any) -> Any:
        value = builder.load(builder.inttoptr(at, whole.as_pointer()), align=4 * width)
        return [builder.extract_element(value, _I32(i)) for i in range(width)] if width > 1 else value

    return emit


def _size(kind: Any) -> int:
    return 4 if kind is _F32 else int(kind.width) // 8


def _store(kind: Any, width: int) -> _Emit:
    whole = ir.VectorType(kind, width) if width > 1 else kind

    def emit(builder: Any, at: Any, *values: Any) -> None:
        value: Any = builder.trunc(values[0], kind) if kind in (_I8, _I16) else values[0]
        if width > 1:
            value = ir.Constant(whole, ir.Undefined)
            for i, one in enumerate(values):
                value = builder.insert_element(value, one, _I32(i))
        builder.store(value, builder.inttoptr(at, whole.as_pointer(1)), align=_size(kind) * width)

    return emit


load8 = _instruction("i32", "i64", twins.load8, _load(_I8, 1))
load16 = _instruction("i32", "i64", twins.load16, _load(_I16, 1))
load32 = _instruction("i32", "i64", twins.load32, _load(_I32, 1))
load_int = _instruction("i32", "i64", twins.load_int, _load(_I32, 1))  # a signed number rather than a word
load64 = _instruction("2 x i32", "i64", twins.load64, _load(_I32, 2))
load128 = _instruction("4 x i32", "i64", twins.load128, _load(_I32, 4))
load_long = _instruction("i64", "i64", twins.load_long, _load(_I64, 1))
load_float = _instruction("f32", "i64", twins.load_float, _load(_F32, 1))
load_float4 = _instruction("4 x f32", "i64", twins.load_float4, _load(_F32, 4))
reload_float = _instruction("f32", "i64", twins.load_float, _load(_F32, 1, read_only=False))  # of what this thread will store
reload_float4 = _instruction("4 x f32", "i64", twins.load_float4, _load(_F32, 4, read_only=False))
gather32 = _instruction("i32", "i64", twins.load32, _gather(1))  # from a table, wherever it lies
gather64 = _instruction("2 x i32", "i64", twins.load64, _gather(2))
store8 = _instruction("void", "i64 i32", twins.store8, _store(_I8, 1))
store16 = _instruction("void", "i64 i32", twins.store16, _store(_I16, 1))
store32 = _instruction("void", "i64 i32", twins.store32, _store(_I32, 1))
store128 = _instruction("void", "i64 i32 i32 i32 i32", twins.store128, _store(_I32, 4))
store_float = _instruction("void", "i64 f32", twins.store_float, _store(_F32, 1))
store_float2 = _instruction("void", "i64 f32 f32", twins.store_float2, _store(_F32, 2))
store_float4 = _instruction("void", "i64 f32 f32 f32 f32", twins.store_float4, _store(_F32, 4))

# (word >> shift) & mask, unsigned
bits = _instruction("i32", "i32 i32 i32", twins.bits, lambda b, w, s, m: b.and_(b.lshr(w, s), m))
# byte i of a word, signed
byte = _instruction("i32", "i32 i32", twins.byte, lambda b, w, i: b.sext(b.trunc(b.lshr(w, b.shl(i, _I32(3))), _I8), _I32))
shift_or = _instruction("i32", "i32 i32 i32", twins.shift_or, lambda b, w, v, s: b.or_(w, b.shl(v, s)))  # w | v << s
xor = _instruction("i32", "i32 i32", twins.xor, lambda b, w, v: b.xor(w, v))
add_words = _instruction("i32", "i32 i32", twins.add_words, lambda b, w, v: b.add(w, v))
multiply_words = _instruction("i32", "i32 i32", twins.multiply_words, lambda b, w, v: b.mul(w, v))
as_float = _instruction("f32", "i32", twins.as_float, lambda b, w: b.bitcast(w, _F32))
as_word = _instruction("i32", "f32", twins.as_word, lambda b, v: b.bitcast(v, _I32))
to_float = _instruction("f32", "i32", twins.to_float, lambda b, w: b.sitofp(w, _F32))  # a signed value's, not a word's

count_bits = _asm("popc.b32 $0, $1;", "i32", "i32", twins.count_bits)
pick_bytes = _asm("prmt.b32 $0, $1, $2, $3;", "i32", "i32 i32 i32", twins.pick_bytes)
dp4a = _asm("dp4a.s32.s32 $0, $1, $2, $3;", "i32", "i32 i32 i32", twins.dp4a)
halves = _asm("{ .reg .b16 a, b; mov.b32 {a, b}, $2; cvt.f32.f16 $0, a; cvt.f32.f16 $1, b; }", "2 x f32", "i32", twins.halves)  # low first
half_to_float = _asm("{ .reg .b16 h; cvt.u16.u32 h, $1; cvt.f32.f16 $0, h; }", "f32", "i32", twins.half_to_float)
pack_bf16 = _asm("cvt.rn.bf16x2.f32 $0, $2, $1;", "i32", "f32 f32", twins.pack_bf16)  # first argument in the low half
pack_f16 = _asm("cvt.rn.f16x2.f32 $0, $2, $1;", "i32", "f32 f32", twins.pack_f16)
# never contracted or reordered, whatever the compiler's flags
multiply = _asm("mul.rn.f32 $0, $1, $2;", "f32", "f32 f32", twins.multiply)
add = _asm("add.rn.f32 $0, $1, $2;", "f32", "f32 f32", twins.add)
fused = _asm("fma.rn.f32 $0, $1, $2, $3;", "f32", "f32 f32 f32", twins.fused)
divide = _asm("div.rn.f32 $0, $1, $2;", "f32", "f32 f32", twins.divide)
nearest = _asm("cvt.rni.s32.f32 $0, $1;", "i32", "f32", twins.nearest)  # to even; NaN gives 0

shuffle_xor = _asm("shfl.sync.bfly.b32 $0, $1, $2, 31, 0xffffffff;", "i32", "i32 i32", twins.shuffle_xor, effect=True)
ballot = _asm("{ .reg .pred p; setp.ne.s32 p, $1, 0; vote.sync.ballot.b32 $0, p, 0xffffffff; }", "i32", "i32", twins.ballot, effect=True)
_MMA = "{{$0,$1,$2,$3}}, {{$4,$5,$6,$7}}, {{$8,$9}}, {{$10,$11,$12,$13}};".replace("{{", "{").replace("}}", "}")
_MMA_PARAMS = "i32 i32 i32 i32 i32 i32 f32 f32 f32 f32"
mma_bf16 = _asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 " + _MMA, "4 x f32", _MMA_PARAMS, twins.mma_bf16, effect=True)
mma_f16 = _asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 " + _MMA, "4 x f32", _MMA_PARAMS, twins.mma_f16, effect=True)
copy_commit = _asm("cp.async.commit_group;", "void", "", twins.nothing, effect=True)
copy_wait = _asm("cp.async.wait_group 0;", "void", "", twins.nothing, effect=True)


def _address_of_shared(result: str, twin: Any) -> Any:
    """An instruction: where a shared array lies, as a generic address (i64, for gathers) or in shared memory (i32)."""
    if SIMULATED:
        return twin
    from numba.cuda.extending import intrinsic

    def typing(typingctx: Any, array: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            at = builder.ptrtoint(context.make_array(sig.args[0])(context, builder, value=values[0]).data, _I64)
            if result == "i64":
                return at
            asm = "{ .reg .u64 t; cvta.to.shared.u64 t, $1; cvt.u32.u64 $0, t; }"
            return builder.call(ir.InlineAsm(ir.FunctionType(_I32, [_I64]), asm, "=r,l"), [at])

        return _KINDS[result][0](array), codegen

    return intrinsic(typing)


shared_address = _address_of_shared("i64", twins.shared_address)
shared_place = _address_of_shared("i32", twins.shared_address)


def _shared_vector(result: str, extra: str, twin: Any) -> Any:
    """A 16-byte load or store of a shared int32 or float32 array at an element index that four divides; the compiler may move it."""
    if SIMULATED:
        return twin
    from numba.cuda.extending import intrinsic

    four = ir.VectorType(_F32 if "f32" in result else _I32, 4)

    def place(context: Any, builder: Any, sig: Any, values: Any) -> Any:
        data = context.make_array(sig.args[0])(context, builder, value=values[0]).data
        return builder.bitcast(builder.gep(data, [values[1]]), four.as_pointer())

    def load(typingctx: Any, array: Any, index: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            value = builder.load(place(context, builder, sig, values), align=16)
            return context.make_tuple(builder, sig.return_type, [builder.extract_element(value, _I32(i)) for i in range(4)])

        return _result_type(result)(array, types.int32), codegen

    def store(typingctx: Any, array: Any, index: Any, a: Any, b: Any, c: Any, d: Any) -> Any:
        def codegen(context: Any, builder: Any, sig: Any, values: Any) -> Any:
            value: Any = ir.Constant(four, ir.Undefined)
            for i, one in enumerate(values[2:]):
                value = builder.insert_element(value, one, _I32(i))
            builder.store(value, place(context, builder, sig, values), align=16)
            return context.get_dummy_value()

        return types.void(array, types.int32, *[types.int32] * 4), codegen

    return intrinsic(store if extra else load)


load_shared128 = _shared_vector("4 x i32", "", twins.load_shared128)
load_shared_float4 = _shared_vector("4 x f32", "", twins.load_shared_float4)
store_shared128 = _shared_vector("void", "i32 i32 i32 i32", twins.store_shared128)
# on shared_place addresses: four 8 x 8 tiles of 16-bit values, each lane naming one row of 16 bytes; a store of 16 bytes; and 16 bytes
# from device memory in the background, `size` 0 writing zeros and reading nothing
load_matrix4 = _asm("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {$0,$1,$2,$3}, [$4];", "4 x i32", "i32", twins.load_matrix4, effect=True)
put_shared128 = _asm("st.shared.v4.b32 [$0], {$1,$2,$3,$4};", "void", "i32 i32 i32 i32 i32", twins.store128, effect=True)
copy_async = _asm("cp.async.cg.shared.global [$0], [$1], 16, $2;", "void", "i32 i64 i32", twins.copy_async, effect=True)
