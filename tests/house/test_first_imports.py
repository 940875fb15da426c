"""Each module of the client can be the first that a program imports: no order of imports hides a circle."""

import subprocess
import sys
from pathlib import Path

import pocketmq

ROOT = Path(pocketmq.__path__[0])
# Each import runs in a child that has loaded nothing of the package before.
PROGRAM = """
import importlib, os, sys
failed = []
for name in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            importlib.import_module(name)
        except ImportError as error:
            sys.stderr.write(f"{name}: {error}\\n")
            os._exit(1)
        os._exit(0)
    if os.waitpid(child, 0)[1]:
        failed.append(name)
sys.exit(len(failed))
"""


def test_every_module_of_the_client_can_be_imported_first() -> None:
    names = sorted(
        ".".join(path.relative_to(ROOT.parent).with_suffix("").parts).removesuffix(".__init__")
        for path in [*(ROOT / "client").glob("*.py"), *(ROOT / "client" / "sync").glob("*.py")]
        if path.name != "__main__.py"
    )
    assert len(names) > 20
    ran = subprocess.run([sys.executable, "-c", PROGRAM, *names], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")
