"""Inbox: the processing of a message and the mark that it is processed are one transaction of a database.

    CREATE TABLE pocketmq_inbox (consumer_group, message_key, processed_ms, PRIMARY KEY (both names))

1. A message that a broker delivers again, after a crash or a rebalance, or that a client stored twice by a
   retry, has the same key (UNIQ_KEY), and is processed once for each group.
2. Two consumers with one message at a time: the mark is written first, so the second one waits or fails, by
   the database; what fails is delivered again.
"""

import sqlite3
import sys
import time
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

from pocketmq.model.message import MessageExt
from pocketmq.remoting.errors import IllegalArgument

TABLE = "pocketmq_inbox"
_KEY = "consumer_group = {} AND message_key = {}"
# How a statement names its parameters, by DB-API's paramstyle.
_STYLES = {
    "qmark": ("?", "?", "?"),
    "format": ("%s", "%s", "%s"),
    "pyformat": ("%s", "%s", "%s"),
    "numeric": (":1", ":2", ":3"),
    "numeric_dollar": ("$1", "$2", "$3"),
    "named": (":1", ":2", ":3"),
}


class Inbox:
    """Marks in a table of the application's database, which is made if it is absent.

    connection: of any DB-API module, or of SQLAlchemy (its `Connection`). The inbox commits it, or rolls it
    back.

    >>> import sqlite3
    >>> inbox = Inbox(sqlite3.connect(":memory:"), "orders")
    >>> for attempt in range(2):
    ...     with inbox.once("7F000001") as is_new:
    ...         print(is_new)
    True
    False
    """

    def __init__(self, connection: Any, group: str) -> None:
        """Raises: IllegalArgument for a connection that commits each statement by itself."""
        self._connection = connection
        self._group = group
        self._places = _STYLES[_paramstyle(connection)]
        if _commits_by_itself(connection):
            raise IllegalArgument(
                "the connection commits each statement by itself, so processing and mark would not be one "
                "transaction: switch autocommit off"
            )
        self._execute(
            f"CREATE TABLE IF NOT EXISTS {TABLE} (consumer_group VARCHAR(255) NOT NULL, "
            "message_key VARCHAR(255) NOT NULL, processed_ms BIGINT NOT NULL, "
            "PRIMARY KEY (consumer_group, message_key))"
        )
        connection.commit()

    @contextmanager
    def once(self, message: MessageExt | str) -> Generator[bool, None, None]:
        """Process a message inside; True if it is new. Leaving commits; an error rolls everything back.

        message: or its key. Raises: what the database raises.
        """
        key = message if isinstance(message, str) else message.msg_id
        try:
            is_new = self._mark(key)
            yield is_new
        except BaseException:
            self._connection.rollback()
            raise
        self._connection.commit()

    def forget(self, older_than_s: float) -> int:
        """Delete marks older than that. Returns: how many. Such messages would be processed again."""
        before_ms = int((time.time() - older_than_s) * 1000)
        group, before = self._places[:2]
        sql = f"DELETE FROM {TABLE} WHERE consumer_group = {group} AND processed_ms < {before}"
        found = self._execute(sql, self._group, before_ms).rowcount
        self._connection.commit()
        return int(found)

    def _mark(self, key: str) -> bool:
        where = _KEY.format(*self._places)
        found = self._execute(f"SELECT 1 FROM {TABLE} WHERE {where}", self._group, key).fetchone()
        if found is not None:
            return False
        sql = f"INSERT INTO {TABLE} VALUES ({', '.join(self._places)})"
        self._execute(sql, self._group, key, int(time.time() * 1000))
        return True

    def _execute(self, sql: str, *values: Any) -> Any:
        if hasattr(self._connection, "exec_driver_sql"):
            return self._connection.exec_driver_sql(sql, values)
        cursor = self._connection.cursor()
        cursor.execute(sql, values)
        return cursor


def _paramstyle(connection: Any) -> str:
    dialect = getattr(connection, "dialect", None)
    if dialect is not None:
        return str(dialect.paramstyle)
    module = sys.modules.get(type(connection).__module__.partition(".")[0])
    return str(getattr(module, "paramstyle", "qmark"))


def _commits_by_itself(connection: Any) -> bool:
    if isinstance(connection, sqlite3.Connection):
        return connection.isolation_level is None
    return getattr(connection, "autocommit", False) is True
