"""Files that several processes change: no change is lost, and a holder that stands still ends no other."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pocketmq.broker.access.acl import PlainAccessValidator
from pocketmq.namesrv.kv_config import KVConfig
from pocketmq.store import ConfigFile
from pocketmq.store.one_writer import one_writer

ADDS = """
import sys
from pathlib import Path
from pocketmq.broker.access.acl import PlainAccessValidator
from pocketmq.namesrv.kv_config import KVConfig
from pocketmq.store import ConfigFile
folder, name = Path(sys.argv[1]), sys.argv[2]
accounts = PlainAccessValidator(folder / "plain_acl.yml")
values = KVConfig(ConfigFile(str(folder / "kvConfig.json")))
print("ready", flush=True)
sys.stdin.readline()
for number in range(20):
    accounts.put_account({"accessKey": f"account-{name}-{number:03}", "secretKey": "0123456789"})
    accounts.delete_account(f"old-{name}-{number:03}")
    values.put("n", f"{name}-{number}", "v")
"""
FIRST = "accounts:\n- {accessKey: adminadmin, secretKey: adminsecret, admin: true}\n"


def test_two_processes_lose_no_change_of_a_shared_file(tmp_path: Path) -> None:
    """Accounts of two brokers, values of two name servers; what was deleted does not come back."""
    old = "".join(
        f"- {{accessKey: old-{name}-{number:03}, secretKey: '0123456789'}}\n"
        for name in "ab"
        for number in range(20)
    )
    path = tmp_path / "plain_acl.yml"
    path.write_text(FIRST + old, "utf-8")
    path.chmod(0o600)
    workers = [
        subprocess.Popen(
            [sys.executable, "-c", ADDS, str(tmp_path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in "ab"
    ]
    for worker in workers:
        assert worker.stdout is not None
        assert worker.stdout.readline() == "ready\n"
    for worker in workers:
        worker.communicate("go\n")
        assert worker.returncode == 0
    made = {f"account-{name}-{number:03}" for name in "ab" for number in range(20)}
    known = PlainAccessValidator(path).to_json()["plainAccessConfigs"]
    assert {each["accessKey"] for each in known} == {"adminadmin", *made}
    assert path.stat().st_mode & 0o777 == 0o600
    values = KVConfig(ConfigFile(str(tmp_path / "kvConfig.json")))
    assert len(values.namespace("n") or {}) == 40


def test_a_name_server_reads_what_another_has_written(tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    one, other = (KVConfig(ConfigFile(str(path))) for _ in range(2))
    one.put("n", "k", "1")
    assert other.get("n", "k") == "1"
    other.put("n", "k", "2")
    assert one.namespace("n") == {"k": "2"}
    one.delete("n", "k")
    assert other.get("n", "k") is None
    path.write_text("{", "utf-8")
    path.with_name("kvConfig.json.bak").unlink()
    assert other.namespace("n") == {}


def test_a_holder_that_stands_still_is_named_in_an_error(tmp_path: Path) -> None:
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        with one_writer(tmp_path / "a"):
            held.set()
            done.wait()

    holder = threading.Thread(target=hold)
    holder.start()
    try:
        held.wait()
        link = tmp_path / "below"
        link.mkdir()
        (link / "a").symlink_to(tmp_path / "a")
        with pytest.raises(TimeoutError, match="another process is changing"):
            with one_writer(link / "a", wait_s=0.01):
                pass
        with one_writer(link / "b", wait_s=0.01):
            pass
    finally:
        done.set()
        holder.join()
    with one_writer(tmp_path / "a", wait_s=0.01):
        pass
