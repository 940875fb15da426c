"""Settings that are changed while a broker runs hold after a restart, until the configuration changes."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.command import RemotingCommand
from tests.broker.serving import Peer, serving

SETTINGS = "traceOn=false\nflushIntervalCommitLog=400\n"


def stored(folder: Path) -> Any:
    return json.loads((folder / "config" / "changedSettings.json").read_text())["settings"]


async def change(peer: Peer, text: str) -> RemotingCommand:
    return await peer.ask(RequestCode.UPDATE_BROKER_CONFIG, {}, text.encode())


async def test_a_change_holds_after_a_restart(tmp_path: Path) -> None:
    async with serving(tmp_path) as broker:
        async with await Peer.at(broker) as peer:
            answer = await change(peer, f"{SETTINGS}startAcceptSendRequestTimeStamp=1\n")
            assert answer.code == ResponseCode.SUCCESS
            # Saved before the answer: the broker may be killed now.
            rows = stored(tmp_path)
            assert {name: (row["was"], row["value"]) for name, row in rows.items()} == {
                "traceOn": ("true", "false"),
                "flushIntervalCommitLog": ("500", "400"),
            }
            assert all(row["by"].startswith("127.0.0.1:") for row in rows.values())
    async with serving(tmp_path) as broker:
        assert broker.config.trace_on is False
        # A migration's: of one run.
        assert broker.config.start_accept_send_request_time_stamp == 0
        assert broker.store_config.flush_interval_commit_log == 400
        async with await Peer.at(broker) as peer:
            # Back to what the configuration says: no longer changed.
            assert (await change(peer, "traceOn=true")).code == ResponseCode.SUCCESS
    assert list(stored(tmp_path)) == ["flushIntervalCommitLog"]


async def test_a_later_configuration_ends_the_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        await change(peer, "flushIntervalCommitLog=400")
    async with serving(tmp_path, store={"flush_interval_commit_log": 300}) as broker:
        assert broker.store_config.flush_interval_commit_log == 300
    assert (
        "forgot a change that was made while the broker ran name=flushIntervalCommitLog"
        in caplog.text
    )
    async with serving(tmp_path) as broker:
        # It was forgotten, and does not return with the old configuration.
        assert broker.store_config.flush_interval_commit_log == 500
    assert stored(tmp_path) == {}


async def test_a_change_that_cannot_be_saved_holds_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as a bound of the disk's use that is raised because the disk is full."""

    def refuse(*_: object) -> None:
        raise OSError(28, "No space left on device")

    async with serving(tmp_path) as broker, await Peer.at(broker) as peer:
        with monkeypatch.context() as full:
            full.setattr("pocketmq.store.config_file.ConfigFile.write", refuse)
            answer = await change(peer, "diskMaxUsedSpaceRatio=90")
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert "changed until the broker stops; it cannot be saved" in (answer.remark or "")
        assert "No space left" in (answer.remark or "")
        assert broker.store_config.disk_max_used_space_ratio == 90


async def test_rows_that_make_no_sense_keep_no_broker_from_starting(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    rows = {
        "noSuchSetting": {"value": "1", "was": "0"},
        "listenPort": {"value": "1", "was": "0"},
        "flushIntervalCommitLog": {"value": "minus one", "was": "500"},
        "traceOn": {"value": False, "was": True},
    }
    os.makedirs(tmp_path / "config")
    (tmp_path / "config" / "changedSettings.json").write_text(json.dumps({"settings": rows}))
    async with serving(tmp_path) as broker:
        assert broker.store_config.flush_interval_commit_log == 500
        assert broker.config.trace_on is True
    for name in rows:
        assert name in caplog.text
