"""The name server's tables, as a state machine: no socket, a clock that a test turns."""

import json
import struct
import zlib
from dataclasses import replace

import pytest

from pocketmq.model.data_version import DataVersion
from pocketmq.model.tables import TopicConfig
from pocketmq.namesrv.quota import QuotaExceeded
from pocketmq.namesrv.registration_body import decode_registration, decoding
from pocketmq.namesrv.route_info import BrokerRegistration, Registered, RouteInfo
from pocketmq.remoting.clock import ManualClock
from pocketmq.remoting.errors import ProtocolError


def registration(
    name: str = "a",
    broker_id: int = 0,
    address: str = "10.0.0.1:10911",
    *,
    topics: dict[str, TopicConfig] | None = None,
    version: int = 1,
    cluster: str = "c",
    timeout_ms: int = 120_000,
) -> BrokerRegistration:
    return BrokerRegistration(
        cluster,
        name,
        broker_id,
        address,
        f"{address}-ha",
        DataVersion(1_000, version),
        {"T": TopicConfig("T", 4, 4, 6)} if topics is None else topics,
        timeout_ms=timeout_ms,
    )


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def routes(clock: ManualClock) -> RouteInfo:
    return RouteInfo(clock)


def addresses(routes: RouteInfo, topic: str = "T") -> list[dict[int, str]]:
    route = routes.route(topic)
    return [] if route is None else [data["brokerAddrs"] for data in route["brokerDatas"]]


def test_only_registered_topics_have_a_route(routes: RouteInfo) -> None:
    routes.register(registration(), "link")
    assert routes.route("T") == {
        "brokerDatas": [
            {"brokerAddrs": {0: "10.0.0.1:10911"}, "brokerName": "a", "cluster": "c"},
        ],
        "filterServerTable": {},
        "queueDatas": [
            {
                "brokerName": "a",
                "perm": 6,
                "readQueueNums": 4,
                "topicSysFlag": 0,
                "writeQueueNums": 4,
            }
        ],
    }
    assert routes.route("other") is None


def test_the_route_of_two_brokers_is_in_the_order_of_their_names(routes: RouteInfo) -> None:
    for name in ("b", "a"):
        routes.register(registration(name, address=f"10.0.0.{name}:1"), name)
    first = routes.route("T")
    assert first is not None
    assert [data["brokerName"] for data in first["queueDatas"]] == ["a", "b"]
    routes.register(registration("b", address="10.0.0.b:1", version=2), "b")
    assert routes.route("T") == first


def test_queue_data_is_taken_from_masters_only(routes: RouteInfo) -> None:
    routes.register(registration(broker_id=1), "slave")
    assert routes.route("T") is None
    assert routes.cluster_info()["brokerAddrTable"]["a"]["brokerAddrs"] == {1: "10.0.0.1:10911"}


def test_an_unchanged_version_leaves_the_queue_data_as_they_are(routes: RouteInfo) -> None:
    routes.register(registration(), "link")
    routes.set_writable("a", False)
    routes.register(registration(), "link")
    route = routes.route("T")
    assert route is not None
    assert route["queueDatas"][0]["perm"] == 4
    mended = {"T": TopicConfig("T", 8, 8, 6)}
    routes.register(registration(topics=mended, version=2), "link")
    route = routes.route("T")
    assert route is not None
    assert route["queueDatas"][0]["perm"] == 6


def test_a_whole_table_after_one_topic_of_its_version_counts(
    routes: RouteInfo,
) -> None:
    """A changed topic is told at once and alone; a name server that starts then misses nothing."""
    routes.register(registration(topics={"U": TopicConfig("U", 1, 1, 6)}), "link")
    whole = {"T": TopicConfig("T", 4, 4, 6), "U": TopicConfig("U", 1, 1, 6)}
    routes.register(registration(topics=whole), "link")
    assert routes.topics() == ["T", "U"]
    routes.delete_topic("T")
    routes.register(registration(topics=whole), "link")
    assert routes.topics() == ["U"]


def test_a_topic_missing_from_a_later_table_stays(routes: RouteInfo) -> None:
    routes.register(registration(), "link")
    routes.register(registration(topics={"U": TopicConfig("U", 1, 1, 6)}, version=2), "link")
    assert routes.topics() == ["T", "U"]


def test_a_slave_learns_its_master_and_a_master_nothing(routes: RouteInfo) -> None:
    assert routes.register(registration(), "m") == Registered()
    learned = routes.register(registration(broker_id=1, address="10.0.0.2:10911"), "s")
    assert learned == Registered("10.0.0.1:10911", "10.0.0.1:10911-ha")
    assert addresses(routes) == [{0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}]


def test_an_address_that_registers_under_another_id_is_moved(routes: RouteInfo) -> None:
    routes.register(registration(broker_id=1), "link")
    routes.register(registration(broker_id=0), "link")
    assert addresses(routes) == [{0: "10.0.0.1:10911"}]


def test_a_broker_without_a_registration_for_120_s_is_removed(
    routes: RouteInfo, clock: ManualClock
) -> None:
    routes.register(registration(), "link")
    clock.advance_ms(120_000)
    assert routes.expire() == []
    assert routes.route("T") is not None
    clock.advance_ms(1)
    assert routes.expire() == ["link"]
    assert routes.route("T") is None
    assert routes.cluster_info() == {"brokerAddrTable": {}, "clusterAddrTable": {}}
    assert routes.topics() == []


def test_heartbeats_and_unchanged_versions_are_signs_of_life(
    routes: RouteInfo, clock: ManualClock
) -> None:
    routes.register(registration(timeout_ms=1_000), "link")
    clock.advance_ms(900)
    assert routes.keep_alive("10.0.0.1:10911")
    clock.advance_ms(900)
    assert routes.expire() == []
    assert not routes.keep_alive("10.0.0.9:10911")


def test_a_jump_of_the_wall_clock_removes_nobody(routes: RouteInfo, clock: ManualClock) -> None:
    routes.register(registration(), "link")
    clock.jump_ms(86_400_000)
    assert routes.expire() == []


def test_a_closed_connection_removes_its_broker_at_once(routes: RouteInfo) -> None:
    routes.register(registration("a"), "link a")
    routes.register(registration("b", address="10.0.0.2:10911"), "link b")
    assert routes.connection_closed("link a") == ["10.0.0.1:10911"]
    assert addresses(routes) == [{0: "10.0.0.2:10911"}]


def test_an_old_connections_end_keeps_a_returned_broker(routes: RouteInfo) -> None:
    routes.register(registration(), "old")
    routes.register(registration(), "new")
    assert routes.connection_closed("old") == []
    assert addresses(routes) == [{0: "10.0.0.1:10911"}]


def test_the_loss_of_a_master_leaves_the_slave_in_the_route(routes: RouteInfo) -> None:
    """The broker name appears without id 0: producers skip it, consumers use it."""
    routes.register(registration(), "m")
    routes.register(registration(broker_id=1, address="10.0.0.2:10911"), "s")
    routes.connection_closed("m")
    assert addresses(routes) == [{1: "10.0.0.2:10911"}]


def test_a_late_farewell_does_not_remove_the_successor(routes: RouteInfo) -> None:
    routes.register(registration(address="10.0.0.1:1"), "old")
    routes.register(registration(address="10.0.0.1:2"), "new")
    routes.unregister("a", 0, "10.0.0.1:1", None)
    assert addresses(routes) == [{0: "10.0.0.1:2"}]
    routes.unregister("a", 0, "10.0.0.1:2", None)
    assert routes.route("T") is None


def test_a_topic_is_deleted_on_all_brokers_or_in_one_cluster(routes: RouteInfo) -> None:
    routes.register(registration("a", cluster="c1"), "a")
    routes.register(registration("b", address="10.0.0.2:1", cluster="c2"), "b")
    routes.delete_topic("T", "c1")
    assert addresses(routes) == [{0: "10.0.0.2:1"}]
    assert routes.topics_of_cluster("c1") == []
    assert routes.topics_of_cluster("c2") == ["T"]
    routes.delete_topic("T")
    assert routes.route("T") is None


def test_the_write_permission_is_wiped_and_added(routes: RouteInfo) -> None:
    routes.register(
        registration(topics={"T": TopicConfig("T", 4, 4, 7), "U": TopicConfig("U", 1, 1, 4)}),
        "link",
    )
    assert routes.set_writable("a", False) == 2
    route = routes.route("T")
    assert route is not None
    assert route["queueDatas"][0]["perm"] == 5
    assert routes.set_writable("a", True) == 2
    assert routes.set_writable("absent", True) == 0
    for topic in ("T", "U"):
        route = routes.route(topic)
        assert route is not None
        assert route["queueDatas"][0]["perm"] == 6


def perms(routes: RouteInfo, *topics: str) -> list[int]:
    found = [routes.route(topic) or {} for topic in topics]
    return [each["queueDatas"][0]["perm"] for each in found]


def test_a_wiped_permission_outlives_later_registrations(routes: RouteInfo) -> None:
    """A broker sends its whole table after each new topic and group."""
    table = {"T": TopicConfig("T", 4, 4, 6), "U": TopicConfig("U", 1, 1, 6)}
    routes.register(registration(topics=table), "link")
    routes.set_writable("a", False)
    table["%RETRY%g"] = TopicConfig("%RETRY%g", 1, 1, 6)
    # What no route shows changes nothing.
    table["T"] = TopicConfig("T", 4, 4, 6, order=True)
    routes.register(registration(topics=table, version=2), "link")
    assert perms(routes, "T", "U", "%RETRY%g") == [4, 4, 6]
    # Twice, and then with a change of the topic's own.
    routes.set_writable("a", False)
    changed = {**table, "U": TopicConfig("U", 8, 8, 6)}
    routes.register(registration(topics=changed, version=3), "link")
    assert perms(routes, "T", "U", "%RETRY%g") == [4, 6, 4]
    # The other way round it holds as well.
    read_only = {**changed, "T": TopicConfig("T", 4, 4, 4)}
    routes.register(registration(topics=read_only, version=4), "link")
    routes.set_writable("a", True)
    routes.register(registration(topics=read_only, version=5), "link")
    assert perms(routes, "T", "U", "%RETRY%g") == [6, 6, 6]


def test_a_new_master_begins_with_what_it_registers(routes: RouteInfo) -> None:
    routes.register(registration(), "link")
    routes.set_writable("a", False)
    routes.register(registration(broker_id=1, address="10.0.0.9:1"), "slave")
    assert perms(routes, "T") == [4]
    routes.connection_closed("link")
    routes.register(registration(), "again")
    assert perms(routes, "T") == [6]
    routes.set_writable("a", False)
    routes.delete_topic("T")
    routes.register(registration(version=2), "again")
    assert perms(routes, "T") == [6]


def test_a_single_topic_is_registered_only_when_nobody_has_it(routes: RouteInfo) -> None:
    routes.register(registration(), "link")
    routes.register_topic("N", {"a": TopicConfig("", 2, 2, 6), "unknown": TopicConfig("", 9, 9, 6)})
    routes.register_topic("T", {"a": TopicConfig("", 2, 2, 6)})
    new, old = routes.route("N"), routes.route("T")
    assert new is not None
    assert [data["brokerName"] for data in new["queueDatas"]] == ["a"]
    assert old is not None
    assert old["queueDatas"][0]["readQueueNums"] == 4


def test_no_broker_makes_clients_hold_more_queues_than_they_can(
    routes: RouteInfo, caplog: pytest.LogCaptureFixture
) -> None:
    """A Java client would make 1,000,000,000 queues; the brokers of the same topic are not hurt."""
    counts = {"huge": 10**9, "large": 700_000, "less": 600_000, "minus": -(1 << 31), "usual": 8}
    for name, count in counts.items():
        topics = {"T": TopicConfig("T", 4, count, 6)}
        if name == "minus":
            topics = {"T": TopicConfig("T", count, count, 6)}
        routes.register(registration(name, address=f"{name}:1", topics=topics), name)
    route = routes.route("T")
    assert route is not None
    shown = {each["brokerName"]: each["writeQueueNums"] for each in route["queueDatas"]}
    assert list(shown.items()) == [("less", 600_000), ("minus", -(1 << 31)), ("usual", 8)]
    assert [each["brokerName"] for each in route["brokerDatas"]] == sorted(counts)
    left_out = [each for each in caplog.records if "left out of routes" in each.message]
    assert [each.levelname for each in left_out] == ["WARNING"]
    # One that repairs its topic is back; one that stands alone has no queue for anybody.
    mended = {"T": TopicConfig("T", 4, 4, 6)}
    routes.register(registration("huge", address="huge:1", topics=mended, version=2), "huge")
    assert "huge" in str((routes.route("T") or {})["queueDatas"])
    alone = {"U": TopicConfig("U", (1 << 31) - 1, 1, 6)}
    routes.register(registration("huge", address="huge:1", topics=alone, version=3), "huge")
    assert (routes.route("U") or {})["queueDatas"] == []


# ------------------------------------------------------------ the registration's body


def compressed(topics: list[str], tail: bytes = b"") -> bytes:
    def text(value: str) -> bytes:
        raw = value.encode()
        return struct.pack(">i", len(raw)) + raw

    version = text(json.dumps({"counter": 3, "timestamp": 5, "stateVersion": 2}))
    body = version + struct.pack(">i", len(topics)) + b"".join(text(topic) for topic in topics)
    return zlib.compress(body + text("[]") + tail)


def wrapped(name: str = "T", **config: float) -> bytes:
    wrapper = {"topicConfigTable": {name: config}}
    return json.dumps({"topicConfigSerializeWrapper": wrapper}).encode()


def test_compressed_registrations_equal_plain_ones() -> None:
    body = compressed(["T 4 8 6 SINGLE_TAG", 'U 1 2 4 MULTI_TAG {"a b":"c"}'], b"\0\0\0\0")
    table = decode_registration(body, compressed=True)
    assert table.data_version == DataVersion(5, 3, 2)
    assert table.topics == {"T": TopicConfig("T", 4, 8, 6), "U": TopicConfig("U", 1, 2, 4)}


@pytest.mark.parametrize(
    ("body", "packed"),
    [
        (b"{}", False),
        (b"[1]", False),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"x"}}}}', False),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":[1]}}', False),
        (b'{"topicConfigSerializeWrapper":{"dataVersion":7}}', False),
        (b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"order":"yes"}}}}', False),
        # Java could not read the route of such a topic, of any broker.
        (wrapped(perm=1 << 31), False),
        (wrapped(readQueueNums=1 << 40), False),
        (wrapped(topicSysFlag=1e300), False),
        (wrapped(name="T" * 1_025), False),
        (b'{"topicConfigSerializeWrapper":{"dataVersion":{"counter":9223372036854775808}}}', False),
        (compressed(["T 4 4294967296 6 SINGLE_TAG"]), True),
        (b"\xff\xfe", False),
        (b"not zlib", True),
        (compressed(["T four 8 6 SINGLE_TAG"]), True),
        (compressed(["T"]), True),
        (compressed(["T 4 8 6 SINGLE_TAG"])[:-3], True),
        (zlib.compress(b"\x7f\xff\xff\xff"), True),
        (zlib.compress(b"\xff\xff\xff\xff"), True),
        # A small frame that would take hundreds of MB.
        (compressed([], bytes(65 << 20)), True),
    ],
)
def test_a_broken_registration_is_an_error_that_names_it(body: bytes, packed: bool) -> None:
    with pytest.raises(ProtocolError):
        decode_registration(body, compressed=packed)


@pytest.mark.parametrize("packed", [False, True])
def test_a_large_registration_is_taken_in_steps(packed: bool) -> None:
    """A broker of 100,000 topics, or a stranger, does not stop the loop: a step costs a millisecond."""
    names = [f"T{number}" for number in range(5_000)]
    rows = {name: {"readQueueNums": 4, "writeQueueNums": 8, "perm": 6} for name in names}
    wrapper = {"dataVersion": {}, "topicConfigTable": rows}
    body = (
        compressed([f"{name} 4 8 6 SINGLE_TAG" for name in names])
        if packed
        else json.dumps({"topicConfigSerializeWrapper": wrapper}).encode()
    )
    assert sum(1 for _ in decoding(body, compressed=packed)) >= 10
    table = decode_registration(body, compressed=packed)
    routes = RouteInfo(ManualClock())
    taken = BrokerRegistration("c", "b", 0, "1.1.1.1:1", topics=table.topics)
    steps = routes.registering(taken, "connection")
    assert sum(1 for _ in steps) >= 10
    assert routes.topics() == sorted(names)
    # A connection that closes amid it takes its broker along.
    cut = routes.registering(replace(taken, broker_name="b2", address="2.2.2.2:1"), "other")
    next(cut)
    routes.connection_closed("other")
    cut.close()
    assert "b2" not in str(routes.route("T0"))
    assert routes.route("T0") is not None


def test_a_registration_without_a_body_has_no_topic_table() -> None:
    table = decode_registration(b"", compressed=False)
    assert table.topics is None
    assert table.data_version == DataVersion(0, 0)


def test_all_registrations_together_have_a_bound(
    routes: RouteInfo, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Who registers more is refused, with one line of log; brokers that are known stay, and stay alive."""
    monkeypatch.setattr("pocketmq.namesrv.quota.BROKERS_MAX", 10)
    monkeypatch.setattr("pocketmq.namesrv.quota.SIZE_MAX", 100_000)
    routes.register(registration(), "known")
    for number in range(9):
        routes.register(registration(f"b{number}", address=f"10.0.1.{number}:1", topics={}), "fake")
    for name, address in (("c", "10.0.2.1:1"), ("c", "10.0.1.1:1"), ("a", "10.0.2.1:1")):
        with pytest.raises(QuotaExceeded, match="limit"):
            routes.register(registration(name, address=address), "fake")
    with pytest.raises(QuotaExceeded, match="characters"):
        routes.register(registration("a" * 2_000), "fake")
    many = {f"T{number}": TopicConfig(f"T{number}", 4, 4, 6) for number in range(1_000)}
    for version in (1, 2):
        with pytest.raises(QuotaExceeded, match="do not fit"):
            routes.register(
                registration("b1", address="10.0.1.1:1", topics=many, version=version), "fake"
            )
    assert 100 < len(routes.topics()) < 200
    routes.register_topic("late", {"a": TopicConfig("late", 4, 4, 6)})
    assert routes.route("late") is None
    with pytest.raises(QuotaExceeded, match="1 topics"):
        routes.register(
            registration(topics={"T": TopicConfig("T", 8, 8, 6), **dict(list(many.items())[-1:])}),
            "known",
        )
    assert sum(each.levelname == "ERROR" for each in caplog.records) == 1
    assert len(routes.connection_closed("fake")) == 9
    assert addresses(routes) == [{0: "10.0.0.1:10911"}]
    routes.register(registration(topics=dict(list(many.items())[:50]), version=3), "known")
    assert len(routes.topics()) == 51
    routes.connection_closed("known")
    assert (routes.topics(), routes.quota.size) == ([], 0)


def test_a_broker_removed_amid_its_registration_leaves_nothing(routes: RouteInfo) -> None:
    many = {f"T{number}": TopicConfig(f"T{number}", 4, 4, 6) for number in range(1_000)}
    steps = routes.registering(registration(topics=many), "link")
    next(steps)
    routes.unregister("a", 0, "10.0.0.1:10911", "other")
    assert list(steps) == []
    assert (routes.topics(), routes.quota.size) == ([], 0)


def test_an_unregistration_under_another_name_changes_nothing(routes: RouteInfo) -> None:
    """Its place was left without a sign of life that could end, for ever in the routes."""
    routes.register(registration(), "link")
    routes.unregister("other", 0, "10.0.0.1:10911", "stranger")
    assert routes.connection_closed("link") == ["10.0.0.1:10911"]
    assert routes.route("T") is None


def test_a_master_of_a_smaller_epoch_does_not_retake_the_route(routes: RouteInfo) -> None:
    """Under a controller the state version is the epoch of the master. Recorded: RocketMQ 5.5.0."""

    def lead(address: str, epoch: int) -> None:
        version = DataVersion(1_000, 1, epoch)
        routes.register(replace(registration(address=address), data_version=version), address)

    lead("10.0.0.1:1", 1)
    lead("10.0.0.2:1", 3)
    lead("10.0.0.1:1", 1)
    assert addresses(routes) == [{0: "10.0.0.2:1"}]
    assert routes.data_version("10.0.0.1:1") is None
    lead("10.0.0.1:1", 4)
    assert addresses(routes) == [{0: "10.0.0.1:1"}]
    routes.connection_closed("10.0.0.1:1")
    lead("10.0.0.2:1", 1)
    assert addresses(routes) == [{0: "10.0.0.2:1"}], "nothing is left that would fence it"
