"""Settings that change while a broker runs, and those that say why they do not."""

from pocketmq.model.message_codec import offset_msg_id
from pocketmq.model.names import (
    REVIVE_TOPIC_PREFIX,
    TIMER_TOPIC,
    TRANS_HALF_TOPIC,
    TRANS_OP_HALF_TOPIC,
)
from pocketmq.model.record import read_record
from pocketmq.remoting.codes import ResponseCode
from pocketmq.remoting.hosts import pack_host
from tests.broker.admin_site import CODE, OK, Site


async def test_the_brokers_permission_is_told_to_name_servers(site: Site) -> None:
    await site.make_topic("T", 1)
    await site.ask(CODE.UPDATE_BROKER_CONFIG, b"brokerPermission=4\n")
    route = site.namesrv.routes.route("T")
    assert route is not None
    assert route["queueDatas"][0]["perm"] == 4


async def test_access_control_is_refused_in_words(site: Site) -> None:
    for code in (50, 51, 52, 53, 54):
        answer = await site.ask(code)
        assert answer.code in (1, 209, 210, 211)
        assert "plain_acl.yml" in (answer.remark or "")


async def test_a_topic_takes_no_retries_of_another_group_along(site: Site) -> None:
    """The pop retry topic of group g and topic b has the name of group g_b's retry topic."""
    tables = site.broker.parts.tables
    await site.make_topic("b", 1)
    for group in ("g", "g_b"):
        tables.groups.find(group)
    tables.offsets.place("g", "b", 0, 0)
    for name in ("%RETRY%g_b", "%RETRY%g+b"):
        tables.topics.create_internal(name, 1)
        site.put(name)
    assert (await site.ask(CODE.DELETE_TOPIC_IN_BROKER, topic="b")).code == OK
    assert tables.topics.get("%RETRY%g+b") is None
    assert tables.topics.get("%RETRY%g_b") is not None
    assert site.broker.parts.messages.store.max_offset("%RETRY%g_b", 0) == 1


async def test_queues_of_unknown_topics_are_cleaned(site: Site) -> None:
    await site.make_topic("T", 1)
    site.put("T")
    site.put("unknown")
    own = [TRANS_HALF_TOPIC, TRANS_OP_HALF_TOPIC, TIMER_TOPIC, f"{REVIVE_TOPIC_PREFIX}c"]
    for topic in own:
        site.put(topic)
    assert (await site.ask(CODE.CLEAN_UNUSED_TOPIC)).code == OK
    assert [site.broker.parts.messages.store.max_offset(topic, 0) for topic in own] == [1] * 4
    assert site.broker.parts.messages.store.max_offset("unknown", 0) == 0
    assert site.broker.parts.messages.store.max_offset("T", 0) == 1
    assert (await site.ask(CODE.CLEAN_EXPIRED_CONSUMEQUEUE)).code == OK
    assert (await site.ask(CODE.DELETE_EXPIRED_COMMITLOG)).code == OK
    assert site.broker.parts.messages.store.max_offset("T", 0) == 1


async def test_a_half_message_that_was_given_up_is_asked_about_again(site: Site) -> None:
    position = site.put(
        "TRANS_CHECK_MAX_TIME_TOPIC",
        0,
        b"half",
        b"REAL_TOPIC\x01T\x02REAL_QID\x010\x02TRANSACTION_CHECK_TIMES\x0115\x02PGROUP\x01p",
    )
    msg_id = offset_msg_id(pack_host(site.broker.address), position)
    assert (await site.ask(CODE.RESUME_CHECK_HALF_MESSAGE, msgId=msg_id)).code == OK
    result = site.broker.parts.messages.store.read("RMQ_SYS_TRANS_HALF_TOPIC", 0, 0, 1)
    record = read_record(result.buffers[0])
    assert b"TRANSACTION_CHECK_TIMES\x010" in record.properties
    assert bytes(record.body) == b"half"
    plain = site.put("T")
    for wrong in ("zz", offset_msg_id(pack_host(site.broker.address), plain)):
        answer = await site.ask(CODE.RESUME_CHECK_HALF_MESSAGE, msgId=wrong)
        assert answer.code == ResponseCode.SYSTEM_ERROR
