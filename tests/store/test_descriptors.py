"""Descriptors: the store opens its files when connections have taken all that the process may have."""

import subprocess
import sys
from pathlib import Path

# A store takes them as it opens, before connections come.
_STORE = """
import sys
from pocketmq.remoting.clock import SystemClock
from pocketmq.store import MessageStore, StoreConfig
from pocketmq.store.log import descriptors

config = StoreConfig(store_path_root_dir=sys.argv[1])
store = MessageStore(config, clock=SystemClock(), store_host=bytes(8))
store.open()
assert len(descriptors._spares) == descriptors.SPARES
store.close()
print("done")
"""

# In a process of its own: the limit is that of the process.
_PROGRAM = """
import errno, os, resource, sys
from pocketmq.store.log import descriptors

resource.setrlimit(resource.RLIMIT_NOFILE, (128, 256))
assert descriptors.raise_limit() == 256
descriptors.fill_spares()

def take_all():
    try:
        while True:
            os.open(os.devnull, os.O_RDONLY)
    except OSError as error:
        assert error.errno == errno.EMFILE

take_all()
for _ in range(3):
    files = [descriptors.open_file(sys.executable, os.O_RDONLY) for _ in range(descriptors.SPARES - 1)]
    assert all(os.read(file, 1) for file in files)
    for file in files:
        descriptors.close_file(file)
    # They came back, and no other gets them.
    take_all()
    assert len(descriptors._spares) == descriptors.SPARES
print("done")
"""


def test_a_store_takes_its_spares_when_it_opens(tmp_path: Path) -> None:
    words = [sys.executable, "-c", _STORE, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("done\n", "")


def test_files_are_opened_when_all_descriptors_are_taken() -> None:
    done = subprocess.run(
        [sys.executable, "-c", _PROGRAM], capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.stderr) == ("done\n", "")
