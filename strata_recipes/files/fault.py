"""A fault in a mapped file ends the process with one sentence and exit code 3 instead of a bare signal.

Python's own signal handlers never run on such a fault: the faulting instruction repeats before the interpreter looks. A
ctypes callback would wait for the interpreter's lock, which the thread that waits for the faulting one may hold. So the
handler is machine code without the interpreter: it looks the address up in a table, writes the sentence and leaves.
A signal's disposition belongs to the process, therefore so does the table.
"""

from __future__ import annotations

import ctypes
import functools
import signal
import sys
import threading

from strata_recipes.errors import EXIT_FILES

ROWS = 64  # mappings at once
_LOCK = threading.Lock()

# void handler(int signo, siginfo_t *info, void *context); si_addr lies 16 bytes into siginfo_t on 64-bit Linux.
# A row is {first address, address past the last, sentence, its length}. No row fits: the former disposition comes back and
# the instruction repeats under it.
_HANDLER = """
define void @on_fault(i32 %signo, i8* %info, i8* %context) {{
entry:
  %at = getelementptr i8, i8* %info, i64 16
  %at64 = bitcast i8* %at to i64*
  %address = load i64, i64* %at64
  br label %loop
loop:
  %row = phi i64 [ 0, %entry ], [ %next, %more ]
  %offset = mul i64 %row, 32
  %place = add i64 {table}, %offset
  %p0 = inttoptr i64 %place to i64*
  %p1 = getelementptr i64, i64* %p0, i64 1
  %p2 = getelementptr i64, i64* %p0, i64 2
  %p3 = getelementptr i64, i64* %p0, i64 3
  %first = load volatile i64, i64* %p0
  %past = load volatile i64, i64* %p1
  %above = icmp uge i64 %address, %first
  %below = icmp ult i64 %address, %past
  %inside = and i1 %above, %below
  br i1 %inside, label %ours, label %more
more:
  %next = add i64 %row, 1
  %again = icmp ult i64 %next, {rows}
  br i1 %again, label %loop, label %foreign
ours:
  %text = load volatile i64, i64* %p2
  %length = load volatile i64, i64* %p3
  %write = inttoptr i64 {write} to i64 (i32, i64, i64)*
  %written = call i64 %write(i32 2, i64 %text, i64 %length)
  %leave = inttoptr i64 {leave} to void (i32)*
  call void %leave(i32 {code})
  ret void
foreign:
  %sigaction = inttoptr i64 {sigaction} to i32 (i32, i64, i64)*
  %restored = call i32 %sigaction(i32 %signo, i64 {former}, i64 0)
  ret void
}}
"""


class _Sigaction(ctypes.Structure):
    _fields_ = [("handler", ctypes.c_void_p), ("mask", ctypes.c_char * 128), ("flags", ctypes.c_int), ("restorer", ctypes.c_void_p)]


class _Handler:
    """The compiled handler, its table, and the disposition that it stands in for."""

    def __init__(self) -> None:
        self.libc = ctypes.CDLL(None, use_errno=True)
        self.table = (ctypes.c_uint64 * (4 * ROWS))()
        self.texts: dict[int, ctypes.Array[ctypes.c_char]] = {}
        self.former = _Sigaction()
        self.engine, self.address = self._compile()

    def _compile(self) -> tuple[object, int]:
        import llvmlite.binding as llvm  # comes with numba; late, so that a plan does not pay for it

        llvm.initialize_native_target()
        llvm.initialize_native_asmprinter()
        text = _HANDLER.format(
            table=ctypes.addressof(self.table),
            rows=ROWS,
            write=_address(self.libc.write),
            leave=_address(self.libc._exit),
            code=EXIT_FILES,
            sigaction=_address(self.libc.sigaction),
            former=ctypes.addressof(self.former),
        )
        machine = llvm.Target.from_default_triple().create_target_machine()
        engine = llvm.create_mcjit_compiler(llvm.parse_assembly(text), machine)
        engine.finalize_object()
        return engine, engine.get_function_address("on_fault")

    def install(self) -> None:
        ours = _Sigaction(handler=self.address, flags=_SA_SIGINFO | _SA_ONSTACK)
        self.libc.sigaction(signal.SIGBUS, ctypes.byref(ours), ctypes.byref(self.former))

    def restore(self) -> None:
        self.libc.sigaction(signal.SIGBUS, ctypes.byref(self.former), None)


_SA_SIGINFO, _SA_ONSTACK = 4, 0x08000000


class Guard:
    """Watches one mapped range until it is closed. Off Linux it does nothing: there a fault is no signal."""

    def __init__(self, address: int, num_bytes: int, sentence: str) -> None:
        self._row = -1
        if num_bytes == 0 or not sys.platform.startswith("linux"):
            return
        text = ctypes.create_string_buffer((sentence + "\n").encode())
        with _LOCK:
            handler = _handler()
            self._row = min(set(range(ROWS)) - set(handler.texts))
            if not handler.texts:
                handler.install()
            handler.texts[self._row] = text
            handler.table[4 * self._row : 4 * self._row + 4] = [address, address + num_bytes, ctypes.addressof(text), len(text.value)]

    def close(self) -> None:
        if self._row < 0:
            return
        with _LOCK:
            handler = _handler()
            handler.table[4 * self._row : 4 * self._row + 4] = [0, 0, 0, 0]
            del handler.texts[self._row]
            if not handler.texts:
                handler.restore()
        self._row = -1


@functools.cache
def _handler() -> _Handler:
    return _Handler()


def _address(function: object) -> int:
    return ctypes.cast(function, ctypes.c_void_p).value or 0  # type: ignore[arg-type]
