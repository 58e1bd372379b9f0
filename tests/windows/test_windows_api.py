"""What of the Windows declarations can be checked anywhere: layouts, path forms, error words."""

from __future__ import annotations

import ctypes

from strata_recipes.files.windows_api import ApiError, Overlapped, extended_path


def test_layouts_are_those_of_64_bit_windows() -> None:
    assert ctypes.sizeof(Overlapped) == 32
    assert (Overlapped.offset_low.offset, Overlapped.offset_high.offset, Overlapped.event.offset) == (16, 20, 24)


def test_long_paths_take_the_extended_form() -> None:
    long = "x" * 250
    assert extended_path("C:\\models\\experts.bin") == "C:\\models\\experts.bin"
    assert extended_path(f"C:\\{long}\\e") == f"\\\\?\\C:\\{long}\\e"
    assert extended_path(f"\\\\server\\share\\{long}") == f"\\\\?\\UNC\\server\\share\\{long}"
    assert extended_path(f"\\\\?\\C:\\{long}") == f"\\\\?\\C:\\{long}"


def test_an_error_keeps_code_and_text() -> None:
    error = ApiError(87, "The parameter is incorrect")
    assert str(error) == "The parameter is incorrect (Windows error 87)"
    assert (error.code, error.text, error.errno) == (87, "The parameter is incorrect", None)
