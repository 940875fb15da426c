"""Checks: what must be true of brokers and groups once a run has come to rest."""

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING

from pocketmq.client import MessageQueue
from pocketmq.model.message_codec import to_message
from pocketmq.model.record import read_record
from pocketmq.store import MessageStore
from tests.simulation.ledger import Queue, Sent
from tests.simulation.story import TAGS, TOPIC_OF, group_of, tag_of

if TYPE_CHECKING:
    from tests.simulation.run import Cluster

Stored = dict[tuple[Queue, int], str]
"""The key of the message at an offset."""
# Between an fsync of the log that fails and the refusal of the next message.
_NOTICED_S = 1.0
GROUP_OF = {topic: group for group, topic in TOPIC_OF.items()}
# ASYNC_FLUSH: flushed after 500 ms, or 10 s where little was written; and what the disk takes.
ASYNC_PROMISE_S = 11.5
# When the broker stores the message that is read, at the latest, after it has acknowledged the first one.
LATER_S = {"delay": 35.0, "timer": 35.0, "transaction": 60.0}


def stored(cluster: "Cluster", *, anew: bool = False) -> Stored:
    """Key of the message at each offset of the topics' queues.

    anew: read all of it, not only what was not there at the last look at this broker.
    """
    found: Stored = {}
    for name, node in cluster.brokers.items():
        if node.broker is None:
            cluster.ledger.fault(cluster.now_s, f"{name} does not run")
            continue
        known = {} if anew else cluster.known.setdefault(node.broker, {})
        with node.disk.looked_at():
            found.update(_stored_at(cluster, name, node.store, known))
    return found


def _stored_at(cluster: "Cluster", name: str, store: MessageStore, known: Stored) -> Stored:
    found: Stored = {}
    for topic, queue_id in store.queues():
        if topic not in GROUP_OF and not topic.startswith("fresh"):
            continue
        if not cluster.brokers[name].knows(topic):
            # Stored, but no member can ask for it.
            continue
        queue = (topic, name, queue_id)
        low, high = store.min_offset(topic, queue_id), store.max_offset(topic, queue_id)
        while (queue, low) in known:
            found[queue, low] = known[queue, low]
            low += 1
        entries = store.entries(topic, queue_id, low, high - low)
        if len(entries) != high - low:
            cluster.ledger.fault(cluster.now_s, f"{topic} {queue_id}: entries are missing")
        for offset, (position, size, _) in enumerate(entries, low):
            if position < store.reads.verification.trusted_from:
                # As readers do: a torn entry may lead to another record, and is not served then.
                indexed = store.table.open(topic, queue_id)
                position, size = store.reads.verification.entry(
                    indexed, offset, position, size
                ) or (
                    -1,
                    0,
                )
            data = store.record_at(position)
            if data is None or len(data) != size or not store.reads.verification.is_good(position):
                # Lost with the power before it was on the disk, or torn by it: whether it was promised,
                # `missing` says.
                continue
            message = to_message(read_record(data), name)
            if (message.topic, message.queue_id, message.queue_offset) != (topic, queue_id, offset):
                cluster.ledger.fault(
                    cluster.now_s,
                    f"{name} {topic} {queue_id} {offset} leads to {message.topic} "
                    f"{message.queue_id} {message.queue_offset}",
                )
            found[queue, offset] = known[queue, offset] = bytes(message.body).decode()
    return found


def _expected(cluster: "Cluster", sent: Sent) -> bool:
    """Whether the promise that was made for this message still holds; not once it was old."""
    if sent.acked_s is None or sent.outcome == "rollback":
        return False
    if sent.place is not None:
        (topic, broker, queue_id), offset = sent.place
        if offset < cluster.brokers[broker].store.min_offset(topic, queue_id):
            return False
    if cluster.story.sync_flush:
        return True
    stored_s = sent.acked_s + LATER_S.get(sent.kind, 0.0)
    return not any(
        sent.began_s <= cut and broker.longest_life_s(stored_s, cut) <= ASYNC_PROMISE_S
        for broker in cluster.brokers.values()
        for cut in broker.power_cuts_s
    )


def missing(cluster: "Cluster", there: Stored) -> list[str]:
    """What was acknowledged and is not there."""
    keys = set(there.values())
    wrong = []
    for sent in cluster.ledger.sent.values():
        if not _expected(cluster, sent):
            continue
        if sent.key not in keys:
            wrong.append(f"{sent.key} was acknowledged and is not stored")
        elif cluster.story.sync_flush and sent.place and there.get(sent.place) != sent.key:
            wrong.append(f"{sent.key} is not at {sent.place}, where {there.get(sent.place)} is")
    return wrong


def unprocessed(cluster: "Cluster", there: Stored) -> list[str]:
    """What is stored and was not processed by its group."""
    found = []
    # Nearly all of it was processed, and this is asked again and again.
    done = {group: handled.keys for group, handled in cluster.ledger.groups.items()}
    left = [
        (place, key)
        for place, key in there.items()
        if (group := GROUP_OF.get(place[0][0])) is not None and key not in done.get(group, ())
    ]
    for (queue, offset), key in sorted(left):
        group = GROUP_OF[queue[0]]
        if not _asked_for(cluster, group, key):
            continue
        handled = cluster.ledger.group(group)
        if _place_was_lost(cluster, (queue, offset), key):
            continue
        if (
            cluster.ledger.at_the_end is not None
            and (queue, offset) not in cluster.ledger.at_the_end
        ):
            # A timer, say, that came once more.
            continue
        if key in handled.failed and not cluster.story.sync_flush and _lost_power(cluster):
            # The copy that was to come again may have been in the end of the log that was lost.
            continue
        found.append(f"{key} at {queue} {offset} was never processed by {group}")
    return found


def _place_was_lost(cluster: "Cluster", place: tuple[Queue, int], key: str) -> bool:
    """Whether another message was there when the power went.

    The end of the log was lost with it; no producer was promised that message, but the group may be past it,
    and so past the one that has its offset now. RocketMQ, too, lets consumers read what is not on the disk.
    """
    return bool(cluster.ledger.had_at_cut.get(place, set()) - {key})


def remember_places(cluster: "Cluster", name: str) -> None:
    """What a broker has in the moment of its end; the power may go before another one serves."""
    node = cluster.brokers[name]
    if node.broker is not None:
        known = cluster.known.setdefault(node.broker, {})
        with node.disk.looked_at():
            found = _stored_at(cluster, name, node.store, known)
        for place, key in found.items():
            cluster.ledger.had_at_cut.setdefault(place, set()).add(key)
        for group in cluster.ledger.groups.values():
            group.before_cut |= group.changing
        # Copied for those who pop, but its log refuses to hear of it: it may come again.
        for ack, _ in node.broker.parts.services.pop.log.unwritten:
            with node.disk.looked_at():
                keys = _keys_at(node.store, ack.name.topic, ack.name.queue_id, ack.offsets)
            cluster.ledger.group(ack.name.group).before_cut |= keys


def _keys_at(store: MessageStore, topic: str, queue_id: int, offsets: Iterable[int]) -> set[str]:
    """The keys of the messages there, in a retry topic, too."""
    found = [entry for each in offsets for entry in store.entries(topic, queue_id, each, 1)]
    records = [store.record_at(*entry[:2]) for entry in found]
    return {bytes(read_record(data).body).decode() for data in records if data is not None}


def remember(cluster: "Cluster", name: str) -> None:
    """What a broker has in the moment in which its power goes."""
    remember_places(cluster, name)
    if not cluster.story.sync_flush:
        # Acknowledgements are in the log like all else.
        cluster.ledger.lost_power_s = cluster.now_s
        for group in cluster.ledger.groups.values():
            group.acked.clear()
            group.before_cut |= group.keys | group.failed


def _asked_for(cluster: "Cluster", group: str, key: str) -> bool:
    """Whether some member of the group wants the message."""
    members = [name for name in cluster.story.consumers if group_of(name) == group]
    return any(tag_of(key) in TAGS.get(name, "ab") for name in members)


def _lost_power(cluster: "Cluster") -> bool:
    return any(broker.power_cuts_s for broker in cluster.brokers.values())


def rolled_back(cluster: "Cluster", there: Stored) -> list[str]:
    keys = set(there.values())
    return [
        f"{sent.key} was rolled back and is visible"
        for sent in cluster.ledger.sent.values()
        if sent.outcome == "rollback" and sent.key in keys
    ]


def popped_again(cluster: "Cluster", there: Stored) -> list[str]:
    """What was acknowledged and was handed out all the same; not what its producer had sent twice."""
    count = Counter(there.values())
    return [
        f"{key} was acknowledged and came again"
        for handled in cluster.ledger.groups.values()
        for key in sorted(handled.again - handled.before_cut)
        if count[key] == 1
    ]


def out_of_order(cluster: "Cluster", there: Stored) -> list[str]:
    """What an orderly group got before an earlier message; not where that one was lost with the power."""
    return [
        f"ordered got {queue} {offset} before {earlier} was processed"
        for queue, offset, earlier in cluster.ledger.overtaken
        if not _was_lost(cluster, (queue, earlier), there)
    ]


def _was_lost(cluster: "Cluster", place: tuple[Queue, int], there: Stored) -> bool:
    """Whether the power took what was at a place, or retention did."""
    (topic, broker, queue_id), offset = place
    if place in there:
        return _place_was_lost(cluster, place, there[place])
    low = cluster.brokers[broker].store.min_offset(topic, queue_id)
    return offset < low or place in cluster.ledger.had_at_cut


def acknowledged_in_vain(cluster: "Cluster") -> list[str]:
    """What a broker acknowledged that could not bring its log to the disk any more."""
    return [
        f"{sent.key} was acknowledged by {sent.place[0][1]}, whose fsync had failed"
        for sent in cluster.ledger.sent.values()
        if sent.place is not None and sent.acked_s is not None
        for failed_s, gone_s in cluster.brokers[sent.place[0][1]].failed_syncs_s()
        if failed_s + _NOTICED_S < sent.began_s and sent.acked_s < gone_s
    ]


def offsets_ahead(cluster: "Cluster", there: Stored) -> list[str]:
    """Committed offsets beyond what came back from a listener."""
    wrong = []
    for name, node in cluster.brokers.items():
        if node.broker is None:
            continue
        for topic, group in GROUP_OF.items():
            if group in ("popper", "receiver"):
                # Its offset is behind what is handed out, done or not.
                continue
            handled = cluster.ledger.group(group)
            for queue_id, committed in node.offsets.of_topic(group, topic).items():
                queue = (topic, name, queue_id)
                wrong += [
                    f"{group} committed {committed} of {queue}, but {offset} never came back"
                    for offset in range(committed)
                    if (queue, offset) not in handled.returned
                    and (queue, offset) in there
                    and _asked_for(cluster, group, there[queue, offset])
                    and not _place_was_lost(cluster, (queue, offset), there[queue, offset])
                ]
    return wrong


def allocation(cluster: "Cluster") -> list[str]:
    """What is wrong with the owners of queues now."""
    wrong = []
    sharing: dict[tuple[str, str], list[MessageQueue]] = {}
    for member in cluster.consumers.values():
        owned = member.owned()
        if owned is not None:
            # Members that ask for something else have a list of their own.
            sharing.setdefault((member.group, TAGS.get(member.name, "")), []).extend(owned)
    for (group, tag), owned in sharing.items():
        wanted = cluster.queue_count(TOPIC_OF[group])
        if len(set(owned)) != len(owned):
            wrong.append(f"{group} {tag}: a queue has two owners")
        if len(set(owned)) != wanted:
            wrong.append(f"{group} {tag}: {len(set(owned))} of {wanted} queues have an owner")
    return wrong


def _may_still_come(cluster: "Cluster", there: Stored) -> bool:
    """Whether a broker may yet store what it was told to keep for later, promised or not."""
    keys = set(there.values())
    return any(
        sent.kind in LATER_S
        and sent.outcome != "rollback"
        and sent.key not in keys
        and cluster.now_s < sent.began_s + LATER_S[sent.kind]
        for sent in cluster.ledger.sent.values()
    )


def all_processed(cluster: "Cluster") -> bool:
    if any(node.broker is None for node in cluster.brokers.values()):
        return False
    there = stored(cluster)
    return not (
        unprocessed(cluster, there) or missing(cluster, there) or _may_still_come(cluster, there)
    )


def check(cluster: "Cluster") -> None:
    """All that must hold at rest."""
    there = stored(cluster, anew=True)
    for each in (
        missing,
        unprocessed,
        rolled_back,
        popped_again,
        out_of_order,
        offsets_ahead,
    ):
        for text in each(cluster, there):
            cluster.ledger.fault(cluster.now_s, text)
    for text in acknowledged_in_vain(cluster):
        cluster.ledger.fault(cluster.now_s, text)
