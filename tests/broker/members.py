"""Members of consumer groups for tests of the broker's state machines: real connections, never opened."""

from pocketmq.broker.groups.client_channel import ClientChannel
from pocketmq.broker.groups.consumer_manager import ConsumerManager
from pocketmq.model.subscription import SQL92, SubscriptionData, build_subscription
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.transport.connection import Connection


def open_connection(clock: ManualClock) -> Connection:
    return Connection({}, spawn=lambda coroutine: None, monotonic_ms=clock.monotonic_ms)


class Member:
    """A client of one group that heartbeats when it is told to."""

    def __init__(
        self,
        consumers: ConsumerManager,
        clock: ManualClock,
        client_id: str,
        subscriptions: dict[str, str],
        *,
        group: str = "g",
        consume_type: str = "CONSUME_PASSIVELY",
        message_model: str = "CLUSTERING",
    ) -> None:
        self.consumers, self.clock, self.client_id, self.group = consumers, clock, client_id, group
        self.connection = open_connection(clock)
        self.consume_type, self.message_model = consume_type, message_model
        self.subscribe(subscriptions)

    def subscribe(self, subscriptions: dict[str, str]) -> None:
        """Topic -> tags, or a SQL92 text that begins with `sql:`; heartbeats at once."""
        self.subscriptions = [
            build_subscription(topic, text.removeprefix("sql:"), SQL92, self.clock.now_ms())
            if text.startswith("sql:")
            else build_subscription(topic, text, sub_version=self.clock.now_ms())
            for topic, text in subscriptions.items()
        ]
        if self.message_model == "CLUSTERING":
            self.subscriptions.append(SubscriptionData(f"%RETRY%{self.group}"))
        self.heartbeat()

    def heartbeat(self) -> None:
        self.consumers.register(
            self.group,
            ClientChannel(self.connection, self.client_id, "JAVA", 407),
            self.consume_type,
            self.message_model,
            "CONSUME_FROM_LAST_OFFSET",
            self.subscriptions,
        )

    def leave(self) -> None:
        self.consumers.unregister(self.group, self.connection)

    def die(self) -> None:
        self.consumers.connection_closed(self.connection)
