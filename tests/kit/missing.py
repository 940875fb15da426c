"""What a test needs and a machine may lack: a skip at home that says what to install; a failure in CI."""

import os
from collections.abc import Callable
from typing import TypeVar

import pytest

from tests.interop.toolchain import ToolchainMissing, program

T = TypeVar("T")


def or_missing(make: Callable[[], T]) -> T:
    """Return make(); end the test if it raises ToolchainMissing."""
    try:
        return make()
    except ToolchainMissing as missing:
        if os.environ.get("CI") == "true":
            pytest.fail(str(missing))
        pytest.skip(str(missing))


def needed(name: str, package: str) -> str:
    """Return the path of a program that tools/setup.sh installs by Debian's package of that name."""
    return or_missing(lambda: program(name, f"Debian: apt install {package}"))
