"""kombu's own integration cases with our connections: collected by the run of test_kombu_suite.py only."""

import os

import kombu
import pytest
from t.integration import common

import pocketmq.integrations.kombu  # noqa: F401 - makes `pocketmq://` known

# As on kombu's own classes: its cases give a broker one second, which a crowded machine may need itself.
pytestmark = pytest.mark.flaky(reruns=5, reruns_delay=2)

SERVER = os.environ["POCKETMQ_SERVER"]


@pytest.fixture
def connection() -> kombu.Connection:
    return kombu.Connection(f"pocketmq://{SERVER}")


@pytest.fixture
def invalid_connection() -> kombu.Connection:
    return kombu.Connection("pocketmq://localhost:12345", connect_timeout=1)


@pytest.fixture
def failover_connection() -> kombu.Connection:
    return kombu.Connection(f"pocketmq://localhost:12345;pocketmq://{SERVER}", connect_timeout=10)


class TestBasic(common.BasicFunctionality):
    pass


class TestExchangeTypes(common.BaseExchangeTypes):
    pass


class TestMessage(common.BaseMessage):
    pass


class TestPriority(common.BasePriority):
    pass


class TestTimeToLive(common.BaseTimeToLive):
    pass


class TestEventLoop(common.BaseEventLoop):
    pass


class TestFailover(common.BaseFailover):
    pass
