"""The inbox of a consumer: a message is processed once, with its mark, whatever is delivered twice."""

import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from pocketmq import PushConsumer
from pocketmq.client.inbox import TABLE, Inbox
from pocketmq.remoting.errors import IllegalArgument

# Each message is processed twice at least; the program is killed in the middle of some of them.
PROGRAM = """
import os, signal, sqlite3, sys
from pocketmq.client.inbox import Inbox

connection = sqlite3.connect(sys.argv[1])
inbox, kill_at = Inbox(connection, "g"), int(sys.argv[2])
for number in range(20):
    with inbox.once(f"key-{number}") as is_new:
        if is_new:
            connection.execute("UPDATE account SET amount = amount + 1")
        if number == kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_kill_takes_the_processing_and_its_mark(tmp_path: Path) -> None:
    path = tmp_path / "store.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE account (amount INTEGER)")
        connection.execute("INSERT INTO account VALUES (0)")
    for kill_at in (3, 3, 11, 19, 99):
        command = [sys.executable, "-c", PROGRAM, str(path), str(kill_at)]
        ended = subprocess.run(command, check=False, env=dict(os.environ), timeout=60)
        assert ended.returncode == (0 if kill_at == 99 else -signal.SIGKILL)
        with sqlite3.connect(path) as connection:
            [amount] = connection.execute("SELECT amount FROM account").fetchone()
            [marks] = connection.execute(f"SELECT count(*) FROM {TABLE}").fetchone()
        assert amount == marks == min(kill_at, 20)


def test_an_error_rolls_both_back(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "store.db")
    connection.execute("CREATE TABLE done (key TEXT)")
    inbox = PushConsumer("g", name_server="localhost:1").once(connection)

    def fail() -> None:
        with inbox.once("key"):
            connection.execute("INSERT INTO done VALUES ('key')")
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        fail()
    assert connection.execute("SELECT * FROM done").fetchall() == []
    with inbox.once("key") as is_new:
        assert is_new
    # Of another group it is new.
    with Inbox(connection, "other").once("key") as is_new:
        assert is_new
    assert (inbox.forget(3_600), inbox.forget(-1)) == (0, 1)
    with inbox.once("key") as is_new:
        assert is_new


def test_a_connection_without_transactions_is_refused(tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "store.db", isolation_level=None)
    with pytest.raises(IllegalArgument, match="switch autocommit off"):
        Inbox(connection, "g")


def test_a_connection_of_sqlalchemy(tmp_path: Path) -> None:
    alchemy = pytest.importorskip("sqlalchemy")
    engine = alchemy.create_engine(f"sqlite:///{tmp_path / 'store.db'}")
    with engine.connect() as connection:
        inbox = Inbox(connection, "g")
        found = []
        for _ in range(2):
            with inbox.once("key") as is_new:
                found.append(is_new)
        assert found == [True, False]
