"""A store knows its broker's name, and readers of its files call the broker by it."""

from pathlib import Path

from pocketmq.bulk import find_roots
from pocketmq.files.broker_name import BROKER, keep_name, kept_name
from pocketmq.testing import InProcess


def test_files_and_broker_agree_on_the_name(tmp_path: Path) -> None:
    store = tmp_path / "data"
    with InProcess({"brokerName": "broker-x"}, store=str(store)):
        assert kept_name(str(store)) == "broker-x"
    assert [root.broker_name for root in find_roots(str(store))] == ["broker-x"]


def test_the_folder_names_a_broker_without_a_whole_file(tmp_path: Path) -> None:
    store = tmp_path / "broker-a" / "store"
    store.mkdir(parents=True)
    for broken in (None, b"", b"{", b"[]", b'{"name": 5}'):
        if broken is not None:
            (store / BROKER).write_bytes(broken)
        assert [r.broker_name for r in find_roots(str(store))] == ["broker-a"]
    keep_name(str(store), "broker-b")
    assert [r.broker_name for r in find_roots(str(store / "commitlog"))] == ["broker-b"]
