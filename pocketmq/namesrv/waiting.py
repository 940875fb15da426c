"""WaitingClients: clients to notify when a topic appears whose route they have asked for in vain. Ours.

RocketMQ's clients ask again every 30 s. PocketMQ's clients offer in their query to be notified
(`tellWhenKnown`), and get NOTIFY_TOPIC_KNOWN over the same connection; others never see that code.

1. A client waits for TIME_MS after it last asked, until it is notified, or until its connection ends.
2. CLIENT_MAX topics per client and ALL_MAX in all; a query beyond them is not remembered. No notice was
   promised: clients continue to ask.
Owner: the name server's event loop. No I/O but the notification, no task.
"""

from collections.abc import Iterable

from pocketmq.remoting.clock import Clock
from pocketmq.remoting.errors import ConnectionLost
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.remoting.transport.peer import Peer

# More than the 30 s after which a client looks at all of its routes again.
TIME_MS = 60_000
CLIENT_MAX = 100
ALL_MAX = 2_000


class WaitingClients:
    """Attributes: count (clients and topics, as pairs)."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        # topic -> client -> when it last asked, monotonic ms; and the topics of each client.
        self._topics: dict[str, dict[Peer, int]] = {}
        self._clients: dict[Peer, set[str]] = {}
        self.count = 0

    def add(self, topic: str, client: Peer) -> None:
        """Remember that the client asked for the topic in vain."""
        wanted = self._clients.get(client, ())
        if topic not in wanted:
            if self.count >= ALL_MAX or len(wanted) >= CLIENT_MAX:
                return
            self._clients.setdefault(client, set()).add(topic)
            self.count += 1
        self._topics.setdefault(topic, {})[client] = self._clock.monotonic_ms()

    def tell(self, topics: Iterable[str]) -> None:
        """Notify the clients that wait for one of the topics."""
        for topic in topics:
            for client in list(self._topics.get(topic, ())):
                self._remove(topic, client)
                try:
                    client.tell(PocketRequestCode.NOTIFY_TOPIC_KNOWN, {"topic": topic})
                except ConnectionLost:
                    continue

    def expire(self) -> None:
        """Forget those whose time is over."""
        oldest_ms = self._clock.monotonic_ms() - TIME_MS
        late = [
            (topic, client)
            for topic, clients in self._topics.items()
            for client, asked_ms in clients.items()
            if asked_ms < oldest_ms
        ]
        for topic, client in late:
            self._remove(topic, client)

    def forget(self, client: Peer) -> None:
        """Forget a client that has disconnected."""
        for topic in list(self._clients.get(client, ())):
            self._remove(topic, client)

    def _remove(self, topic: str, client: Peer) -> None:
        self.count -= 1
        clients, topics = self._topics[topic], self._clients[client]
        del clients[client]
        topics.remove(topic)
        if not clients:
            del self._topics[topic]
        if not topics:
            del self._clients[client]
