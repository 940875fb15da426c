"""`from pocketmq import Producer`: the client's names, and nothing loaded before one is asked for."""

import subprocess
import sys

import pytest

import pocketmq
from pocketmq import client


def test_it_has_the_names_of_the_client() -> None:
    assert set(client.__all__) <= set(dir(pocketmq))
    for name in client.__all__:
        assert getattr(pocketmq, name) is getattr(client, name)


def test_another_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'pocketmq' has no attribute 'Nothing'"):
        _ = pocketmq.Nothing  # type: ignore[attr-defined]
    with pytest.raises(ImportError, match="cannot import name 'Nothing'"):
        exec("from pocketmq import Nothing")


def test_importing_it_loads_no_room() -> None:
    code = "import sys, pocketmq; print([m for m in sys.modules if m.startswith('pocketmq.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_program_imports_from_it_without_what_is_heavy() -> None:
    code = (
        "import sys\n"
        "from pocketmq import Message, Producer, PushConsumer, SimpleConsumer\n"
        "print([m for m in ('numpy', 'pyarrow', 'google.protobuf', 'typer', 'uvloop') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_each_name_can_be_imported_first() -> None:
    """One child process a module: what one import has loaded hides the next one's circle."""
    code = (
        "import os\n"
        "from pocketmq import client\n"
        "names = [('pocketmq.client', name) for name in client.__all__]\n"
        "names += [('pocketmq.client.sync', None), ('pocketmq.admin', None)]\n"
        "names += [('pocketmq.testing', 'InProcess')]\n"
        "for package, name in names:\n"
        "    child = os.fork()\n"
        "    if not child:\n"
        "        done = 1\n"
        "        try:\n"
        "            module = __import__(package, fromlist=['x'])\n"
        "            if name:\n"
        "                getattr(module, name)\n"
        "            done = 0\n"
        "        finally:\n"
        "            os._exit(done)\n"
        "    if os.waitpid(child, 0)[1]:\n"
        "        print(package, name)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n") == [""]
