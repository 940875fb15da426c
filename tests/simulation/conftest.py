"""How many seeds: --simulations, in blocks, so that several processes can share them."""

import pytest

_BLOCK = 10
_TRIOS_MIN = 200
# A run of a pair that fails over takes as long as some of the others.
_FOR_A_FAILOVER = 10


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "seeds" in metafunc.fixturenames:
        count = metafunc.config.getoption("--simulations")
        blocks = [range(at, min(at + _BLOCK, count)) for at in range(0, count, _BLOCK)]
        metafunc.parametrize("seeds", blocks, ids=lambda block: f"{block.start}-{block.stop - 1}")
    if "failover" in metafunc.fixturenames:
        count = metafunc.config.getoption("--simulations")
        metafunc.parametrize("failover", range(-(-count // _FOR_A_FAILOVER)))
    if "trios" in metafunc.fixturenames:
        # Quick ones, so more of them.
        count = max(_TRIOS_MIN, metafunc.config.getoption("--simulations"))
        blocks = [range(at, min(at + _BLOCK, count)) for at in range(0, count, _BLOCK)]
        metafunc.parametrize("trios", blocks, ids=lambda block: f"{block.start}-{block.stop - 1}")
