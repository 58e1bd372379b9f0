"""Writes bcryptprimitives.dll, which Wine 8 lacks and Rust's standard library wants: its ProcessPrng is advapi32's SystemFunction036.

Both fill (buffer, length) with random bytes and return true. A DLL may export another DLL's function by name, so the file
holds one export table and no code: forwarder_dll.py OUT.dll
"""

from __future__ import annotations

import struct
import sys
from pathlib import Path

DLL, FUNCTION, TARGET = b"bcryptprimitives.dll\0", b"ProcessPrng\0", b"advapi32.SystemFunction036\0"
SECTION_RVA, FILE_UNIT, PAGE = 0x1000, 0x200, 0x1000


def export_section() -> bytes:
    """IMAGE_EXPORT_DIRECTORY, one function, one name, one ordinal, and the strings; addresses are relative to the image."""
    functions, names, ordinals = SECTION_RVA + 40, SECTION_RVA + 44, SECTION_RVA + 48
    dll = SECTION_RVA + 50
    function, target = dll + len(DLL), dll + len(DLL) + len(FUNCTION)
    directory = struct.pack("<IIHHIIIIIII", 0, 0, 0, 0, dll, 1, 1, 1, functions, names, ordinals)
    return directory + struct.pack("<IIH", target, function, 0) + DLL + FUNCTION + TARGET


def image() -> bytes:
    section = export_section()
    dos = b"MZ".ljust(60, b"\0") + struct.pack("<I", 64)
    machine_x64, optional_size, executable_dll_64 = 0x8664, 240, 0x2022
    coff = struct.pack("<4sHHIIIHH", b"PE\0\0", machine_x64, 1, 0, 0, 0, optional_size, executable_dll_64)
    optional = struct.pack("<HBBIIIII", 0x20B, 14, 0, 0, FILE_UNIT, 0, 0, SECTION_RVA)  # PE32+, no code, no entry point
    optional += struct.pack("<QIIHHHHHHIIII", 0x180000000, PAGE, FILE_UNIT, 6, 0, 0, 0, 6, 0, 0, 2 * PAGE, FILE_UNIT, 0)
    optional += struct.pack("<HHQQQQII", 2, 0x160, 1 << 20, 1 << 12, 1 << 20, 1 << 12, 0, 16)
    optional += struct.pack("<II", SECTION_RVA, len(section)) + b"\0" * 8 * 15  # the first directory is the exports
    header = struct.pack("<8sIIIIIIHHI", b".rdata", len(section), SECTION_RVA, FILE_UNIT, FILE_UNIT, 0, 0, 0, 0, 0x40000040)
    return (dos + coff + optional + header).ljust(FILE_UNIT, b"\0") + section.ljust(FILE_UNIT, b"\0")


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(image())
