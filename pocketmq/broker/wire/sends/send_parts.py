"""SendParts: what all kinds of sends use, kept up to date with settings and topics."""

from pocketmq.broker.acts.send import SendActs
from pocketmq.broker.node import Node
from pocketmq.broker.parts import Messages
from pocketmq.broker.wire.sends.kept_answers import KeptAnswers
from pocketmq.broker.wire.sends.plain_send import PlainTopics
from pocketmq.broker.wire.sends.send_answer import send_answers
from pocketmq.broker.wire.sends.send_runs import SendRuns
from pocketmq.remoting.transport.connection import Connection


class SendParts:
    """Attributes: topics (those whose plain messages need no check), answers (by encoding), answer_ext
    (MSG_REGION and TRACE_ON, which every response has), more (properties that the broker adds to a message:
    of clients of 4.x, and of 5.x, with region and trace, without which 5.x consumers trace nothing).
    """

    def __init__(self, node: Node, messages: Messages, acts: SendActs) -> None:
        self._config = node.config
        self._host = node.store_host.hex().upper()
        self._cluster = b"\x02CLUSTER\x01" + node.config.broker_cluster_name.encode()
        self._monotonic_ms = node.clock.monotonic_ms
        self.acts = acts
        self.store = messages.store
        self.durability = messages.durability
        self.latencies = messages.stats.latencies
        self.kept = KeptAnswers(node, messages)
        self.runs = SendRuns(node, messages, self.kept, acts.added.of_batch)
        self.topics: PlainTopics = {}
        # The same of topics where a message may be a repetition: `PlainTopic.once` is asked.
        self.once: PlainTopics = {}
        self.take_settings()

    def take_settings(self, changed: object = None) -> None:
        """Make anew what depends on settings: what was prepared under others ends (see PlainTopics)."""
        self.forget_topics()
        self.topics, self.once = {}, {}
        trace = str(self._config.trace_on).lower()
        self.answer_ext = {"MSG_REGION": self._config.region_id, "TRACE_ON": trace}
        self.answers = send_answers(self._host, self.answer_ext)
        self.more = self._cluster, self._cluster + self.acts.added.trace()

    def forget_topics(self, changed: object = None) -> None:
        """Let the act look at the next message to each topic: topics have changed."""
        self.topics.clear()
        self.once.clear()

    def remember(self, topic: str) -> None:
        """Let the next plain message to this topic be taken without a look by the act."""
        name = topic.encode()
        if name not in self.topics and name not in self.once:
            plain = self.acts.plain_topic(topic)
            if plain is not None:
                (self.topics if plain.once is None else self.once)[name] = plain

    def count(self, code: int, answer: int, connection: Connection) -> None:
        """Count the latency of a request with this answer."""
        self.latencies.add(code, answer, self._monotonic_ms() - connection.last_read_ms)

    def look(self, code: int, connection: Connection) -> None:
        """Measure one of many plain sends."""
        self.latencies.look(code, self._monotonic_ms() - connection.last_read_ms)
