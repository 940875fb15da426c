"""The documentation holds: programs and commands run, links lead somewhere, tables are the code's."""

import json
import os
import re
import shlex
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq.cli.servers.server_options import parse
from tests.cli.servers import COMMAND, Server
from tests.house.doc_blocks import NAME_SERVER, ROOT, Block, blocks, pages
from tools import reference_pages

_SERVERS = ("up", "broker", "namesrv")
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)#]+)(#[^)]*)?\)")
_PROGRAMS = [
    block for page in pages() for block in blocks(page, "python") if not block.run_elsewhere
]
_COMMANDS = [block for page in pages() for block in blocks(page, "sh") if not block.run_elsewhere]


class Site:
    """A running broker with what the pages speak of: topics, a group, dead letters."""

    def __init__(self, folder: Path, namesrv: str, store: str) -> None:
        self.folder = folder
        self.namesrv = namesrv
        self.store = store
        # A home of its own: a broadcasting consumer keeps its offsets there.
        self.environment = {**os.environ, "NAMESRV_ADDR": namesrv, "HOME": str(folder)}
        self.message_id = ""

    def pocketmq(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [*COMMAND, *words],
            cwd=self.folder,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("docs")
    server = Server(folder, "up", "--namesrv-port", "0", "--broker-port", "0")
    try:
        namesrv = server.ready()["namesrv"]
        site = Site(folder, namesrv, str(folder / "data"))
        for words in (
            ("topic", "create", "TopicTest", "--queues", "4"),
            ("topic", "create", "Orders", "--queues", "4"),
            ("group", "create", "orders_readers"),
            ("group", "create", "my_readers"),
            ("topic", "create", "%DLQ%orders_readers", "--queues", "1"),
        ):
            made = site.pocketmq(*words)
            assert made.returncode == 0, made.stderr
        site.pocketmq("message", "send", "TopicTest", "hello", "--tag", "tagA")
        sent = site.pocketmq("message", "send", "Orders", "one", "--keys", "order-4711", "--json")
        site.message_id = json.loads(sent.stdout)[0]["msgId"]
        yield site
        assert server.stop() == 0
    finally:
        server.kill()


@pytest.mark.slow
@pytest.mark.parametrize("block", _PROGRAMS, ids=lambda block: block.name)
def test_a_program_of_the_documentation_runs(block: Block, site: Site) -> None:
    """It ends by itself without an error, or prints the text of `until` and ends when it gets SIGTERM.

    Functions whose names begin with test_ are run by pytest.
    """
    path = site.folder / "test_program.py"
    path.write_text(block.text.replace(NAME_SERVER, site.namesrv), encoding="utf-8")
    arguments = shlex.split(block.words.get("args", ""))
    as_tests = ["-m", "pytest", "-q"] if re.search(r"^(async )?def test_", block.text, re.M) else []
    with subprocess.Popen(
        [sys.executable, "-u", *as_tests, str(path), *arguments],
        cwd=site.folder,
        env=site.environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    ) as process:
        assert process.stdout is not None
        # Far behind what any program here needs: one that waits for ever must not stop the run.
        last = threading.Timer(180, process.kill)
        last.start()
        printed = ""
        if "until" in block.words:
            for line in process.stdout:
                printed += line
                if block.words["until"] in line:
                    break
            process.terminate()
        printed += process.stdout.read()
        last.cancel()
    assert process.returncode == 0, printed


@pytest.mark.slow
@pytest.mark.parametrize("block", _COMMANDS, ids=lambda block: block.name)
def test_a_command_of_the_documentation_does_what_it_says(block: Block, site: Site) -> None:
    """Commands of PocketMQ run; servers' options are understood; targets of make exist."""
    for line in block.text.splitlines():
        words = shlex.split(line, comments=True)
        if not words:
            continue
        words[0] = words[0].removeprefix(".venv/bin/")
        if words[0] == "make":
            makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
            assert re.search(rf"^{words[1]}:", makefile, re.MULTILINE), line
        elif words[0] == "pocketmq" and words[1] in _SERVERS:
            if "--help" not in words:
                parse(words[1], words[2:])
        elif words[0] == "pocketmq":
            _run(words[1:], line, site)
        else:
            assert words[0] in ("docker", "helm", "kubectl", "pip", "pytest", "curl", "mqadmin"), (
                line
            )


def _run(words: list[str], line: str, site: Site) -> None:
    # A command that follows a topic or a store runs until it is stopped.
    words = [word for word in words if word not in ("-f", "--follow")]
    words = [site.message_id if word == "MESSAGE_ID" else word for word in words]
    done = site.pocketmq(*words)
    # 1 is an answer too: findings of a doctor, a store of a running broker.
    may_find = words[0] == "store" or "doctor" in words[:2]
    expected = (0, 1) if may_find else (0,)
    assert done.returncode in expected, f"{line}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr, done.stderr


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_a_link_leads_to_a_file(page: Path) -> None:
    for target, _ in _LINK.findall(page.read_text(encoding="utf-8")):
        if not target.startswith(("http:", "https:")):
            assert (page.parent / target).exists(), target


def test_every_page_is_in_the_index_and_in_the_navigation() -> None:
    index = (ROOT / "docs" / "README.md").read_text(encoding="utf-8")
    navigation = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    for page in sorted((ROOT / "docs").glob("*.md")):
        if page.name != "README.md":
            assert f"({page.name})" in index, page.name
        assert f": {page.name}\n" in navigation, page.name


@pytest.mark.parametrize("name", sorted(reference_pages.PAGES))
def test_a_page_made_from_the_code_is_what_the_code_says(name: str) -> None:
    """After a new setting, code or tested command: python -m tools.reference_pages"""
    kept = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert kept == reference_pages.PAGES[name](), "run: python -m tools.reference_pages"
