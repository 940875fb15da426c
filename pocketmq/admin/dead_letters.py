"""Dead letters: given to their group again, where the group reads.

A group that pulls reads its retries from %RETRY%group. One that pops (SDKs of 5.x, simple consumers) never
looks there: its pops of a topic read %RETRY%group_topic, at each broker of the topic. An orderly pop reads
no retry topic at all. Source: PopMessageProcessor, RocketMQ 5.3.3.
"""

from pocketmq.admin.cluster import Cluster
from pocketmq.admin.copies import own_properties
from pocketmq.admin.groups import GroupAdmin
from pocketmq.admin.topics import TopicAdmin
from pocketmq.client.errors import ConsumerNotOnline
from pocketmq.client.send.result import SendResult
from pocketmq.model.message import MessageExt, MessageQueue, Property
from pocketmq.model.message_codec import properties_to_text
from pocketmq.model.names import AUTO_CREATE_TOPIC, TOOLS_GROUP, retry_topic
from pocketmq.model.pop_receipt import normal_topic, pop_retry_topic
from pocketmq.remoting import headers
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import IllegalArgument, RemotingError

# PocketMQ only: the property of a dead letter's copy that names the letter by its offset message id.
RESENT_FROM = "DLQ_RESENT_FROM"
_CALL_TIMEOUT_MS = 15_000


class DeadLetterAdmin:
    """See the head of the file."""

    def __init__(self, site: Cluster, topics: TopicAdmin, groups: GroupAdmin) -> None:
        self._site = site
        self._api = site.api
        self._topics = topics
        self._groups = groups

    async def resend(self, letter: MessageExt, group: str) -> SendResult:
        """Send a dead letter to its group again, and to no other, through the topic of the group's retries.

        Its count of failures starts again. The dead letter itself stays; the copy names it (RESENT_FROM).
        Raises: NoRoute, BrokerRefused, RemotingError; IllegalArgument for a group of orderly pops.
        """
        first = first_topic(letter, group)
        topic, addresses = await self._reading_place(letter, group, first)
        name = letter.broker_name if letter.broker_name in addresses else min(addresses)
        properties = own_properties(letter.properties)
        properties[Property.RETRY_TOPIC.value] = first
        properties[RESENT_FROM] = letter.offset_msg_id
        header = headers.SendMessageV2Header(
            producer_group=TOOLS_GROUP,
            topic=topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=1,
            queue_id=0,
            sys_flag=0,
            born_timestamp=letter.born_timestamp,
            flag=letter.flag,
            properties=properties_to_text(properties),
            reconsume_times=0,
            # A group without retries would have it among its dead letters at once.
            max_reconsume_times=1,
            batch=None,
        )
        return await self._api.send(
            addresses[name],
            RequestCode.SEND_MESSAGE_V2,
            header.ext(),
            letter.body,
            unique_key=properties.get("UNIQ_KEY", ""),
            queue=MessageQueue(topic, name, 0),
            timeout_ms=_CALL_TIMEOUT_MS,
        )

    def places(self, letter: MessageExt, group: str) -> list[str]:
        """Return the topics in which copies of a dead letter may be."""
        first = first_topic(letter, group)
        popped = [pop_retry_topic(first, group, v2=v2) for v2 in (False, True)]
        return [retry_topic(group), *popped]

    async def _reading_place(
        self, letter: MessageExt, group: str, first: str
    ) -> tuple[str, dict[str, str]]:
        """Return the topic from which the group gets its retries, and where it reads it: addresses by name.

        Raises: IllegalArgument if it reads none.
        """
        if not await self._pops(letter, group):
            pulled = retry_topic(group)
            return pulled, dict(await self._site.masters_of(pulled))
        if await self._is_orderly(group):
            raise IllegalArgument(
                f"group {group!r} pops in order (consumeMessageOrderly), and orderly pops read no retry "
                f"topic: its dead letters cannot be given to it alone. Send them to topic {first!r} again, "
                f"for all of its groups: pocketmq dlq export {group} --out FILE, and pocketmq message "
                f"import FILE --topic {first}"
            )
        if first == letter.topic:
            raise IllegalArgument(
                f"dead letter {letter.offset_msg_id} does not name the topic that it came from, and group "
                f"{group!r} pops: it cannot be given to it. Send it to a topic: pocketmq dlq export {group} "
                "--out FILE, and pocketmq message import FILE --topic TOPIC"
            )
        addresses = dict(await self._site.masters_of(first))
        popped, popped_v2 = self.places(letter, group)[1:]
        is_v2 = await self._topics.exists(popped_v2) and not await self._topics.exists(popped)
        return popped_v2 if is_v2 else popped, addresses

    async def _pops(self, letter: MessageExt, group: str) -> bool:
        """Return True if the group gets its retries by pops.

        Its connected members decide; without any, the letter and the group's topics and offsets show it.
        """
        try:
            connection = await self._groups.connection(group)
        except (ConsumerNotOnline, RemotingError):
            connection = None
        if connection is not None and connection.members:
            return all(map(connection.pops, connection.members))
        if Property.FIRST_POP_TIME.value in letter.properties:
            return True
        pulled, *popped = self.places(letter, group)
        if not await self._topics.exists(pulled):
            return True
        if await self._groups.progress(group, pulled):
            return False
        return any([await self._topics.exists(each) for each in popped])

    async def _is_orderly(self, group: str) -> bool:
        configs = await self._groups.configs(partial=True)
        found = (table[group] for table in configs.values() if group in table)
        return any(each.extra.get("consumeMessageOrderly") is True for each in found)


def first_topic(letter: MessageExt, group: str) -> str:
    """Return the topic that a dead letter was sent to first; its own if it names none."""
    for name in (Property.RETRY_TOPIC, Property.DLQ_ORIGIN_TOPIC):
        if topic := letter.properties.get(name.value):
            return normal_topic(topic, group)
    return letter.topic
