"""What went wrong in a test's clients, and only a log would tell: listeners that raised, clients left."""

import logging
from collections.abc import Sequence

from pocketmq.client.network.instances import running_instances
from pocketmq.model.message import MessageExt, Property
from pocketmq.remoting.errors import Carried

GROUP = "pocketmq-testing"
"""The fixture's own producer."""

_LOG = "pocketmq.client.consume"


class ListenerFailed(Carried, AssertionError):
    """Messages that a group was to consume failed, and were not consumed since."""


class ListenerErrors(logging.Handler):
    """The first exception of each group's listeners in this process, from the clients' log."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self._first: dict[str, BaseException] = {}

    def begin(self) -> None:
        logging.getLogger(_LOG).addHandler(self)

    def end(self) -> None:
        logging.getLogger(_LOG).removeHandler(self)

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info and record.exc_info[1] is not None:
            self._first.setdefault(getattr(record, "group", ""), record.exc_info[1])

    def of(self, group: str) -> BaseException | None:
        """Return what a listener of the group raised first; None if it is in another process."""
        return self._first.get(group)


def delivery(message: MessageExt) -> tuple[str, int]:
    """Return what a failed message keeps while it waits and when it is delivered again."""
    first_id = message.properties.get(Property.ORIGIN_MESSAGE_ID, message.msg_id)
    return first_id, message.reconsume_times


def failure(
    group: str, failed: Sequence[MessageExt], raised: BaseException | None
) -> ListenerFailed:
    """Return the error for messages that failed."""
    first = failed[0]
    topic = first.properties.get(Property.RETRY_TOPIC, first.topic)
    why = f": its listener raised {raised!r}" if raised is not None else ""
    count = len(failed)
    error = ListenerFailed(
        f"{count} message{'' if count == 1 else 's'} of {topic!r} failed in group {group!r}{why}. If the "
        "test wants that: wait_until_consumed(..., accept_failures=True)"
    )
    error.__cause__ = raised
    return error


def clients_left(namesrv: str) -> list[str]:
    """Return the clients of this process, except the fixture's own, that still use a name server."""
    found = []
    for instance in running_instances():
        if namesrv in instance.config.name_servers:
            found += [f"producer {name!r}" for name in instance.producers if name != GROUP]
            found += [f"consumer {name!r}" for name in instance.consumers if name != GROUP]
    return sorted(found)
