"""A store knows its broker's name, and readers of its files call the broker by it."""

from pathlib import Path

from pocketmq.bulk import find_roots
from pocketmq.files.broker_name import BROKER, keep_name, kept_name
from pocketmq.testing import InProcess


def test_files_and_broker_agree_on_the_name(tmp_path: Path) -> None:
    with InProcess(store=tmp_path / "data" / "store") as server:
        name = server.broker_name if hasattr(server, "broker_name") else ""
    told = kept_name(str(tmp_path / "data" / "store"))
    assert told and (not name or name == told)
    assert [r.broker_name for r in find_roots(str(tmp_path / "data" / "store"))] == [told]


def test_the_folder_names_a_broker_whose_file_is_missing_or_broken(tmp_path: Path) -> None:
    store = tmp_path / "broker-a" / "store"
    store.mkdir(parents=True)
    for broken in (None, b"", b"{", b"[]", b'{"name": 5}'):
        if broken is not None:
            (store / BROKER).write_bytes(broken)
        assert [r.broker_name for r in find_roots(str(store))] == ["broker-a"]
    keep_name(str(store), "broker-b")
    assert [r.broker_name for r in find_roots(str(store / "commitlog"))] == ["broker-b"]
