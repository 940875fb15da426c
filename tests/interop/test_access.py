"""Java clients and mqadmin where signatures are checked: all they do with a right account, and no more."""

import secrets
from collections.abc import Iterator
from typing import Any

import pytest

from pocketmq.model.names import REPLY_SUFFIX
from tests.interop.brokers import PocketBroker, RunningBroker
from tests.interop.conftest import or_missing
from tests.interop.driver import PeerError, Session, message
from tests.interop.mqadmin import Mqadmin, mqadmin
from tests.interop.test_client_send_and_consume import FIRST
from tests.interop.test_pop import POP
from tests.interop.toolchain import TOOLS_VERSIONS
from tests.kit.waiting import until

CLUSTER = "DefaultCluster"
TOPICS = ("plain", "orderly", "broadcast", "filtered", "pulled", "decided", "asked", "popped")
APP: dict[str, Any] = {"access_key": "application", "secret_key": "application-secret"}
NOBODY = {"access_key": "denied-user", "secret_key": "denied-secret"}
OPERATOR: dict[str, Any] = {"access_key": "operator", "secret_key": "operator-secret"}
CLIENTS = pytest.mark.parametrize("java_client", ["4.9.8-JSON", "5.5.0-ROCKETMQ"], indirect=True)


def accounts() -> str:
    """The application may use each topic by a group of that name, and reply to requests; nothing else."""
    topics = ", ".join(f"{each}=PUB|SUB" for each in TOPICS)
    groups = ", ".join(f"{each}=SUB" for each in TOPICS)
    return f"""
accounts:
  - {{accessKey: operator, secretKey: operator-secret, admin: true}}
  - {{accessKey: denied-user, secretKey: denied-secret, defaultTopicPerm: DENY}}
  - accessKey: application
    secretKey: application-secret
    defaultTopicPerm: DENY
    defaultGroupPerm: DENY
    topicPerms: [{topics}, {CLUSTER}{REPLY_SUFFIX}=PUB]
    groupPerms: [{groups}]
"""


@pytest.fixture(scope="module")
def closed_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    folder = tmp_path_factory.mktemp("closed")
    config = {
        "aclEnable": "true",
        "enablePropertyFilter": "true",
        "recallMessageEnable": "true",
        "transactionCheckInterval": 1_000,
        "transactionTimeOut": 1_000,
    }
    broker = PocketBroker(folder, config=config)
    path = broker.store / "config" / "plain_acl.yml"
    path.parent.mkdir(parents=True)
    path.write_text(accounts(), encoding="utf-8")
    with broker:
        yield broker


@pytest.fixture(scope="module", params=TOOLS_VERSIONS)
def operator(
    request: pytest.FixtureRequest,
    closed_broker: RunningBroker,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Mqadmin]:
    """mqadmin as an operator has it, with conf/tools.yml."""
    folder = tmp_path_factory.mktemp("operator")
    keys = folder / f"mqadmin-{request.param}-home" / "conf" / "tools.yml"
    keys.parent.mkdir(parents=True)
    keys.write_text("accessKey: operator\nsecretKey: operator-secret\n", encoding="utf-8")
    with or_missing(lambda: mqadmin(request.param, folder, closed_broker.namesrv)) as tool:
        yield tool


@pytest.fixture
def app(closed_broker: RunningBroker, java_client: Session) -> "Application":
    return Application(closed_broker, java_client)


class Application:
    """The application: its clients, each with the account's keys."""

    def __init__(self, broker: RunningBroker, session: Session) -> None:
        self.namesrv = broker.namesrv
        self.session = session
        operator = session.producer(self.namesrv, "operators", **OPERATOR)
        for topic in TOPICS:
            operator.create_topic(topic, queues=2)

    def producer(self, **how: Any) -> Any:
        return self.session.producer(self.namesrv, "producers", **APP, **how)

    def consumer(self, topic: str, subscription: Any = None, **how: Any) -> Any:
        settings = {**FIRST, **how.pop("settings", {})}
        return self.session.push_consumer(
            self.namesrv, topic, subscription or topic, settings=settings, **APP, **how
        )

    def texts(self, consumer: Any) -> list[str]:
        return [each.message.text for each in consumer.consumed if each.success]


def fresh(*words: str) -> list[str]:
    """Texts that no other test has sent."""
    mark = secrets.token_hex(4)
    return [f"{mark} {word}" for word in words]


@CLIENTS
def test_it_sends_and_consumes_and_what_fails_comes_again(app: Application) -> None:
    one, two, fails, batched = fresh("one", "two", "fails", "batched")
    consumer = app.consumer("plain", settings={"pollNameServerInterval": 1_000})
    producer = app.producer()
    producer.send(message("plain", one), message("plain", fails, properties={"fail_times": "1"}))
    producer.send_async(message("plain", two))
    producer.send_batch(message("plain", batched))
    wanted = {one, two, fails, batched}
    until(lambda: wanted <= set(app.texts(consumer)), "all, after a retry", 90)
    [again] = [each for each in consumer.received if each.text == fails and each.reconsume_times]
    assert (again.topic, again.reconsume_times) == ("plain", 1)
    consumer.close()


@CLIENTS
def test_it_consumes_in_order(app: Application) -> None:
    """Queues are locked and unlocked."""
    texts = fresh(*"123456")
    app.producer().send(*(message("orderly", text) for text in texts), shard="x")
    consumer = app.consumer("orderly", orderly=True)
    until(lambda: set(texts) <= set(app.texts(consumer)), "all", 90)
    assert [text for text in app.texts(consumer) if text in texts] == texts
    consumer.close()


@CLIENTS
def test_each_member_gets_what_is_broadcast(app: Application) -> None:
    [text] = fresh("to all")
    all_ = {"messageModel": "BROADCASTING"}
    members = [app.consumer("broadcast", settings=all_, instance=f"i{n}") for n in range(2)]
    app.producer().send(message("broadcast", text))
    until(lambda: all(text in app.texts(each) for each in members), "both have it", 90)


@CLIENTS
def test_it_filters_by_properties(app: Application) -> None:
    """Its expression is checked by the broker before its first heartbeat."""
    low, high = fresh("low", "high")
    wish = [{"topic": "filtered", "expression": "price > 5", "type": "SQL92"}]
    consumer = app.consumer("filtered", wish)
    app.producer().send(
        message("filtered", low, properties={"price": "1"}),
        message("filtered", high, properties={"price": "9"}),
    )
    until(lambda: high in app.texts(consumer), "what it wants", 90)
    assert low not in app.texts(consumer)


@CLIENTS
def test_it_pulls_looks_up_and_commits(app: Application) -> None:
    [text] = fresh("pulled")
    producer = app.producer()
    [sent] = producer.send(message("pulled", text, keys=text.replace(" ", "-")))
    puller = app.session.pull_consumer(app.namesrv, "pulled", **APP)
    queue = next(each for each in puller.queues("pulled") if each.queue == sent.queue)
    found = puller.pull(queue, sent.offset)
    assert found.messages[0].text == text
    puller.commit(queue, sent.offset + 1)
    until(lambda: puller.offset(queue) == sent.offset + 1, "the offset is kept", 30)
    assert producer.view("pulled", sent.offset_msg_id).text == text
    until(
        lambda: (
            [each.text for each in producer.query_key("pulled", text.replace(" ", "-"))] == [text]
        ),
        "the index has it",
        30,
        ignoring=PeerError,
    )
    assert producer.queue_numbers(queue)["max"] >= sent.offset + 1
    assert producer.search_offset(queue, 0) == 0
    lite = app.session.lite_consumer(app.namesrv, "popped", "pulled", settings=FIRST, **APP)
    until(lambda: text in {each.text for each in lite.poll(1_000)}, "lite pull has it")


@CLIENTS
def test_it_ends_its_transactions(app: Application) -> None:
    """At once, and when the broker asks."""
    kept, gone, later = fresh("kept", "gone", "later")
    consumer = app.consumer("decided")
    producer = app.producer(transactional=True)
    producer.transaction(
        message("decided", kept, properties={"local": "COMMIT"}),
        message("decided", gone, properties={"local": "ROLLBACK"}),
        message("decided", later, properties={"local": "UNKNOW", "check": "COMMIT"}),
    )
    until(lambda: {kept, later} <= set(app.texts(consumer)), "both that are committed", 90)
    assert gone not in app.texts(consumer)


@CLIENTS
def test_it_asks_and_replies(app: Application) -> None:
    [text] = fresh("question")
    replier = app.producer(instance="replier")
    app.consumer("asked", reply_by=replier.name)
    answer = app.producer(instance="asker").request(message("asked", text), timeout_ms=30_000)
    assert answer.text == f"reply to {text}"


@pytest.mark.parametrize("java_client", ["5.5.0-JSON"], indirect=True)
@pytest.mark.parametrize("operator", ["5.5.0"], indirect=True)
def test_it_pops_and_recalls(
    app: Application, operator: Mqadmin, closed_broker: RunningBroker
) -> None:
    fine, fails, late = fresh("fine", "fails", "late")
    mode = operator(
        *("setConsumeMode", "-b", closed_broker.address, "-t", "popped", "-g", "popped"),
        *("-m", "POP", "-q", 0),
    )
    assert "success" in mode.out, mode
    consumer = app.consumer("popped", settings=POP)
    producer = app.producer()
    producer.send(message("popped", fine), message("popped", fails, properties={"fail_times": "1"}))
    until(lambda: {fine, fails} <= set(app.texts(consumer)), "both, one after a failure", 90)
    [doomed] = producer.send(message("popped", late, system={"TIMER_DELAY_SEC": "600"}))
    assert producer.recall("popped", doomed.recall_handle) == doomed.msg_id


@CLIENTS
def test_without_the_right_it_can_do_none_of_it(
    closed_broker: RunningBroker, app: Application
) -> None:
    """An account with no right, one that names no key, and the application at a topic of others."""
    namesrv, session = closed_broker.namesrv, app.session
    [text] = fresh("of others")
    [sent] = app.producer().send(message("plain", text, keys="known"))
    strangers: tuple[dict[str, Any], ...] = (NOBODY, {})
    for keys in strangers:
        producer = session.producer(namesrv, "strangers", **keys)
        for act in (
            lambda: producer.send(message("plain", "x")),  # noqa: B023
            lambda: producer.view("plain", sent.offset_msg_id),  # noqa: B023
            lambda: producer.query_key("plain", "known"),  # noqa: B023
            lambda: producer.create_topic("mine"),  # noqa: B023
        ):
            with pytest.raises(PeerError):
                act()
        puller = session.pull_consumer(namesrv, "plain", **keys)
        [queue] = [each for each in puller.queues("plain") if each.queue == sent.queue]
        with pytest.raises(PeerError):
            puller.pull(queue, sent.offset)
    with pytest.raises(PeerError):
        app.producer().create_topic("mine")


def test_an_operator_administers_with_mqadmin(
    closed_broker: RunningBroker, operator: Mqadmin, java_498: Session
) -> None:
    app = Application(closed_broker, java_498)
    [text] = fresh("seen by an operator")
    producer = app.producer(settings={"heartbeatBrokerInterval": 1_000})
    [sent] = producer.send(message("plain", text, keys="operator-key"))
    known = ("producerConnection", "-g", "producers", "-t", "plain")
    until(lambda: "JAVA" in operator(*known).out, "the producer's heartbeat came", 60)
    consumer = app.consumer("plain")
    until(lambda: text in app.texts(consumer), "it is consumed", 90)
    consumer.persist_offsets()
    shown = ("consumerProgress", "-g", "plain")
    until(lambda: "broker-a" in operator(*shown).out, "its offsets are there", 30)
    at = ("-b", closed_broker.address)
    new = java_498.driver.unique("made")
    named = ("-t", "plain") if operator.version.startswith("5") else ()
    asked: tuple[tuple[tuple[object, ...], str], ...] = (
        (("updateTopic", *at, "-t", new, "-r", 2, "-w", 2), new),
        (("updateTopicPerm", *at, "-t", new, "-p", 4), "success"),
        (("updateSubGroup", *at, "-g", new), new),
        (("topicStatus", "-t", "plain"), "broker-a"),
        (("brokerStatus", *at), "bootTimestamp"),
        (("getBrokerConfig", *at), "brokerName"),
        (("brokerConsumeStats", *at), "plain"),
        (("consumerProgress", "-g", "plain"), "plain"),
        (("consumerConnection", "-g", "plain"), "plain"),
        (("consumerStatus", "-g", "plain"), "#ClientId"),
        (("queryMsgById", "-i", sent.offset_msg_id, *named), "plain"),
        (("queryMsgByKey", "-t", "plain", "-k", "operator-key"), "#"),
        (("queryCq", "-t", "plain", "-q", sent.queue, "-i", 0, *at), "physicOffset"),
        (("cloneGroupOffset", "-s", "plain", "-d", new, "-t", "plain"), "success"),
        (("resetOffsetByTime", "-g", "plain", "-t", "plain", "-s", "now", "-f", "true"), "plain"),
        (("cleanExpiredCQ", *at), "success"),
        (("cleanUnusedTopic", *at), "success"),
        (("deleteSubGroup", *at, "-g", new), "success"),
        (("deleteTopic", "-c", CLUSTER, "-t", new), "success"),
    )
    wrong = []
    for (command, *words), says in asked:
        printed = operator(str(command), *words)
        if says not in printed.out or "AclException" in printed.out + printed.err:
            wrong.append((command, printed))
    assert not wrong
