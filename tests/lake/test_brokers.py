"""Tables that follow a running broker: over the network, and by its files while it writes them."""

import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pocketmq import bulk
from pocketmq.bulk.offsets import LossRule
from pocketmq.bulk.partition import Topics
from pocketmq.lake import brokers
from pocketmq.lake.brokers import BrokerSource
from pocketmq.lake.catalog import opened_catalog
from pocketmq.lake.check import Check
from pocketmq.lake.columns import NAMES, table_name
from pocketmq.lake.copy import LakeCopy
from pocketmq.lake.iceberg import IcebergTables
from pocketmq.model.names import is_system_topic
from pocketmq.remoting.admin_headers import DeleteTopicHeader
from pocketmq.remoting.codes import RequestCode
from pocketmq.spark.brokers.client import BrokerClient
from pocketmq.spark.brokers.connection import BrokerAccess
from tests.interop.brokers import RunningBroker, make_broker
from tests.kit.waiting import until
from tests.lake.lakes import check, copy, in_order, rows_by_pyiceberg, source
from tests.spark.broker_topics import make_topic, send, wait_readable


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningBroker]:
    made = make_broker("pocketmq", tmp_path_factory.mktemp("lake") / "broker", config={})
    made.start()
    yield made
    made.kill()


def access(broker: RunningBroker) -> BrokerAccess:
    return BrokerAccess(broker.namesrv, retry_timeout_ms=60_000)


def pulled(broker: RunningBroker, *topics: str) -> BrokerSource:
    return BrokerSource(access(broker), Topics(topics), LossRule())


def test_rows_pulled_from_a_broker_are_those_of_its_files(
    broker: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(brokers, "_PIECE", 50)
    topic = make_topic(broker, 3)
    send(broker, topic, 400)
    wait_readable(broker, topic, 400)
    warehouse = tmp_path / "warehouse"
    with opened_catalog(str(warehouse)) as catalog:
        for added, count in ((400, 30), (30, 0), (0, 0)):
            found = pulled(broker, topic)
            assert LakeCopy(IcebergTables(catalog), found).round() == added
            found.close()
            send(broker, topic, count, first=400)
            wait_readable(broker, topic, 400 + added % 400 + count)
        found = pulled(broker, topic)
        compared = Check(IcebergTables(catalog), found).run()
        found.close()
    assert compared.is_equal, compared
    assert compared.compared == 430
    rows = in_order(rows_by_pyiceberg(warehouse))
    name = rows[0]["brokerName"]
    table = bulk.scan(str(broker.store), topics=[topic], columns=NAMES, broker_name=name).read_all()
    files = table.to_pylist()
    for row in files:
        row["properties"] = dict(row["properties"])
    assert rows == in_order(files)
    # And the tables that the network filled continue from the files.
    assert copy(warehouse, broker.store, topics=[topic], broker_names=name) == {}
    assert check(warehouse, broker.store, topics=[topic], broker_names=name).compared == 430


def test_a_recreated_topic_is_known_by_its_last_message(
    broker: RunningBroker, tmp_path: Path
) -> None:
    """Its new queues are longer than the old: offsets alone would hide the first new messages."""
    topic = make_topic(broker, 1)
    with opened_catalog(str(tmp_path / "warehouse")) as catalog:
        for count, added in ((20, 20), (50, 50), (5, 5)):
            send(broker, topic, count)
            wait_readable(broker, topic, count)
            found = pulled(broker, topic)
            assert LakeCopy(IcebergTables(catalog), found).round() == added
            found.close()
            with BrokerClient(access(broker)) as client:
                header = DeleteTopicHeader(topic=topic)
                client.call(broker.address, RequestCode.DELETE_TOPIC_IN_BROKER, header)
                client.name_server(RequestCode.DELETE_TOPIC_IN_NAMESRV, header)
            make_topic(broker, 1, topic)
    rows = rows_by_pyiceberg(tmp_path / "warehouse")
    assert len({row["commitLogOffset"] for row in rows}) == len(rows) == 75


def test_a_followed_store_is_complete_after_a_kill(tmp_path: Path) -> None:
    """The broker is killed with -9 while messages arrive and tables follow its files."""
    broker = make_broker(
        "pocketmq", tmp_path / "broker", config={"mappedFileSizeCommitLog": 1 << 16}
    )
    broker.start()
    try:
        topic = make_topic(broker, 3)
        warehouse = tmp_path / "warehouse"
        sent = 0
        for _ in range(3):
            writer = threading.Thread(target=send, args=(broker, topic, 300))
            writer.start()
            sent += 300
            # A broker makes the folder of its log with the first message.
            until(lambda: Path(broker.store, "commitlog").is_dir(), "the store has a log")
            with opened_catalog(str(warehouse)) as catalog:
                run = LakeCopy(
                    IcebergTables(catalog), source(broker.store, topics=[topic], broker_names="b")
                )
                while writer.is_alive():
                    run.round()
            writer.join()
            broker.kill()
            copy(warehouse, broker.store, topics=[topic], broker_names="b")
            broker.start()
        wait_readable(broker, topic, sent)
        copy(warehouse, broker.store, topics=[topic], broker_names="b")
        found = check(warehouse, broker.store, topics=[topic], broker_names="b")
        assert found.is_equal, found
        assert found.compared == sent == len(rows_by_pyiceberg(warehouse))
        assert not is_system_topic(topic)
        assert table_name(topic) == topic
    finally:
        broker.kill()
        shutil.rmtree(tmp_path / "broker", ignore_errors=True)
