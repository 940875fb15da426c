"""What the official allocation classes give: run by the JDK from Maven Central's client jar.

python -m tests.client.java_allocate > table   makes the table anew (stored gzipped under data/)
"""

import gzip
import subprocess
from pathlib import Path

from tests.interop import toolchain

HERE = Path(__file__).parent
TABLE = HERE / "data" / "allocate.txt.gz"


def run_java(version: str) -> str:
    """The table by the real classes. Raises: ToolchainMissing."""
    done = subprocess.run(
        [
            toolchain.java(),
            "-cp",
            toolchain.class_path(f"client-{version}"),
            str(HERE / "java" / "Allocate.java"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-3000:])
    return "".join(line + "\n" for line in done.stdout.splitlines() if line[:1].isupper())


def recorded() -> str:
    """The table that is in the repository."""
    return gzip.decompress(TABLE.read_bytes()).decode()


if __name__ == "__main__":
    TABLE.write_bytes(gzip.compress(run_java("4.9.8").encode(), mtime=0))
