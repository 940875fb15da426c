"""All peers of the default tests, built before the tests run: python -m tests.peers

A test builds the peer that it misses by itself. Done before, downloads and compilers use the time in which
the type checker has only one core, and no test process stands still for them.
"""

import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from tests.interop import toolchain
from tests.spark import peers as spark_peers

BUILDERS: tuple[Callable[[], object], ...] = (
    toolchain.java_peers,
    toolchain.go_driver,
    toolchain.node_driver,
    toolchain.python_driver,
    spark_peers.oldest_pyspark,
    spark_peers.connect_packages,
    spark_peers.frame_packages,
)
_AT_ONCE = 3


def main() -> None:
    """Build what is missing. What cannot be built is told by the tests that need it."""
    with ThreadPoolExecutor(_AT_ONCE) as pool:
        for done in [pool.submit(build) for build in BUILDERS]:
            reason = done.exception()
            if reason is not None:
                sys.stderr.write(f"peers: {str(reason).strip().splitlines()[0]}\n")


if __name__ == "__main__":
    main()
