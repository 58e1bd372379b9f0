"""The printable alphabet in which byte-level vocabularies spell bytes. Knows no tokenizer."""

from __future__ import annotations

# Printable Latin-1 bytes stand for themselves; the other 68, in order, are the code points from 256 on.
_PRINTABLE = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
_OTHERS = [byte for byte in range(256) if byte not in _PRINTABLE]
BYTE_OF = {chr(byte): byte for byte in _PRINTABLE} | {chr(256 + i): byte for i, byte in enumerate(_OTHERS)}


def token_text_bytes(token: str) -> bytes:
    """The bytes that a vocabulary entry spells; an entry outside the alphabet stands for its own UTF-8."""
    if all(char in BYTE_OF for char in token):
        return bytes(BYTE_OF[char] for char in token)
    return token.encode()
