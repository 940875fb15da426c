"""The page of replicas in Chromium: a master and its slave change places by its buttons."""

from pathlib import Path

import pytest
from tests.cli.servers import Server
from tests.console.browser import Browser


def test_master_and_slave_change_places(
    browser: Browser, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The demoted one takes a number that is free: with that of the other slave it would hide it."""
    ports = [
        "--namesrv-port",
        "0",
        "--broker-port",
        "0",
        "--grpc-port",
        "-1",
        "--console-port",
        "0",
    ]
    server = Server(
        tmp_path, "up", "--replicas", "2", "--data", "pair", "--broker-name", "b", *ports
    )
    try:
        ready = server.ready()
        monkeypatch.setattr(browser, "base", ready["console"])
        master, slave = ready["broker"].split(",")
        browser.open("/")
        browser.click("Replicas", within="#nav")

        def shown(*wanted: tuple[str, str, str, str]) -> None:
            browser.wait_for_rows(
                "Brokers", lambda rows: [tuple(row[:4]) for row in rows] == list(wanted)
            )

        shown(
            ("b 0", "SYNC_MASTER", master, "1 slaves in sync"), ("b 1", "SLAVE", slave, "Follows")
        )
        browser.click("Demote")
        browser.wait_for("it takes no more messages")
        browser.dialog("Demote")
        browser.wait_for_rows(
            "Brokers",
            lambda rows: (
                [tuple(row[:3]) for row in rows]
                == [("b 1", "SLAVE", slave), ("b 2", "SLAVE", master)]
            ),
        )
        browser.click("Promote", within="tbody tr:first-of-type")
        browser.wait_for("will be the master of its name")
        browser.dialog("Promote")
        shown(
            ("b 0", "ASYNC_MASTER", slave, "1 slaves in sync"), ("b 2", "SLAVE", master, "Follows")
        )
        browser.click("Resync", within="tbody tr:nth-of-type(2)")
        browser.wait_for("A slave cuts the end of its log")
        browser.dialog("Resync")
        shown(
            ("b 0", "ASYNC_MASTER", slave, "1 slaves in sync"), ("b 2", "SLAVE", master, "Follows")
        )
        assert server.stop() == 0
    finally:
        server.kill()
