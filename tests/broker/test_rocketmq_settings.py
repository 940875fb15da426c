"""Every key of RocketMQ's own files is known by name: honoured, or the log says that it has no effect."""

import logging

import pytest

from pocketmq.broker.broker_conf import read_broker_conf
from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.figures.metrics_config import MetricsConfig
from pocketmq.console.config import ConsoleConfig
from pocketmq.grpc.config import GrpcConfig
from pocketmq.namesrv import NamesrvConfig
from pocketmq.remoting.errors import IllegalArgument
from pocketmq.remoting.rocketmq_settings import NO_EFFECT
from pocketmq.remoting.transport.tls import TlsConfig
from pocketmq.store import StoreConfig

OWN = (
    BrokerConfig,
    StoreConfig,
    NamesrvConfig,
    MetricsConfig,
    GrpcConfig,
    ConsoleConfig,
    TlsConfig,
)


def test_no_setting_of_ours_is_said_to_have_no_effect() -> None:
    for group in OWN:
        assert not NO_EFFECT & group.keys().keys()


def test_a_key_without_effect_is_named_without_suggestions(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    read_broker_conf(dict.fromkeys(NO_EFFECT, "false"))
    for name in ("pullThreadPoolQueueCapacity", "transientStorePoolEnable", "serverSocketBacklog"):
        assert f"setting has no effect in PocketMQ: {name}\n" in caplog.text
    assert caplog.text.count("has no effect") == len(NO_EFFECT)
    assert "did you mean" not in caplog.text
    assert not [each for each in caplog.records if each.levelno > logging.INFO]
    with pytest.raises(IllegalArgument, match="'aclCacheMaxNum': it is RocketMQ's, and has no eff"):
        BrokerConfig().update("aclCacheMaxNum", "5")


def test_the_older_name_of_a_setting_is_honoured() -> None:
    config, _ = read_broker_conf({"haSlaveFallbehindMax": "7"})
    assert config.ha_max_gap_not_in_sync == 7
    config, _ = read_broker_conf({"haSlaveFallbehindMax": "7", "haMaxGapNotInSync": "8"})
    assert config.ha_max_gap_not_in_sync == 8


def test_the_ratio_of_memory_is_a_setting() -> None:
    _, store = read_broker_conf({"accessMessageInMemoryMaxRatio": "0"})
    assert store.access_message_in_memory_max_ratio == 0
