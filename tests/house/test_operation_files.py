"""Files for operators: alerts, the compose file with monitoring, the unit of systemd."""

import configparser
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from pocketmq.broker.config import BrokerConfig
from pocketmq.broker.figures.metrics import NODE_LABELS, metrics
from pocketmq.cli.servers.server_config import unknown_variables
from pocketmq.cli.servers.server_options import parse
from pocketmq.grpc.config import GrpcConfig
from pocketmq.store import StoreConfig
from tests.kit.missing import needed

DOCKER = Path(__file__).parents[2] / "docker"
SHOWN = {name: metric for metric in metrics() for name in metric.shown_names}
# Labels that Prometheus adds to each figure.
SCRAPED = {"instance", "job"}


def read(path: str) -> Any:
    return yaml.safe_load((DOCKER / path).read_text("utf-8"))


RULES = [rule for group in read("prometheus/alerts.yml")["groups"] for rule in group["rules"]]


@pytest.mark.parametrize("rule", RULES, ids=[rule["alert"] for rule in RULES])
def test_an_alert_names_only_metrics_and_labels_that_are_shown(rule: dict[str, Any]) -> None:
    """An alert on a metric that is not exported would never fire."""
    names = re.findall(r"\b(?:rocketmq|pocketmq)_\w+", rule["expr"])
    assert names or rule["expr"].startswith("up{")
    labels = {*NODE_LABELS, *SCRAPED}.union(*(SHOWN[name].labels for name in names))
    assert set(re.findall(r"\$labels\.(\w+)", rule["annotations"]["summary"])) <= labels
    for name in names:
        assert (SHOWN[name].kind == "counter") == (f"increase({name}" in rule["expr"])
    assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_compose_file_with_monitoring_names_what_exists() -> None:
    """Its files, and the targets that Prometheus and Grafana ask."""
    site = read("compose.monitoring.yaml")
    services = site["services"]
    assert services.keys() == {"pocketmq", "prometheus", "grafana"}
    for service in services.values():
        assert all(port.startswith("127.0.0.1:") for port in service["ports"])
        for volume in service["volumes"]:
            source = volume.split(":")[0]
            assert source in site["volumes"] or (DOCKER / source).exists(), source
    assert services["pocketmq"]["read_only"] is True
    assert services["pocketmq"]["cap_drop"] == ["ALL"]
    prometheus = read("prometheus/prometheus.yml")
    assert all((DOCKER / "prometheus" / name).is_file() for name in prometheus["rule_files"])
    [scrape] = prometheus["scrape_configs"]
    [target] = scrape["static_configs"][0]["targets"]
    host, port = target.split(":")
    assert any(each.endswith(f":{port}") for each in services[host]["ports"])
    assert services[host]["environment"]["POCKETMQ_CONSOLE_HOST_NAMES"] == host
    [source] = read("grafana/provisioning/datasources/prometheus.yml")["datasources"]
    assert source["url"] == "http://prometheus:9090"


def test_the_compose_file_with_a_set_fits_together() -> None:
    """Addresses that fit together, words and variables that exist; the chart's test runs such a set."""
    site = read("compose.replicas.yaml")
    services = site["services"]
    names = services.pop("names")
    assert len(services) == 3
    [at] = [each["ipv4_address"] for each in names["networks"].values()]
    settings = parse("namesrv", names["command"][1:]).as_settings()
    assert settings["controllerAdvertisedAddress"] == f"{at}:9878"
    places = set()
    for name, broker in services.items():
        assert parse("broker", broker["command"][1:]).broker_name == "set"
        environment = broker["environment"]
        assert environment["NAMESRV_ADDR"] == f"{at}:9876"
        assert environment["POCKETMQ_CONTROLLER_ADDR"] == f"{at}:9878"
        [own] = [each["ipv4_address"] for each in broker["networks"].values()]
        assert environment["POCKETMQ_BROKER_IP1"] == own
        [volume] = [each.partition(":")[0] for each in broker["volumes"]]
        assert volume in site["volumes"]
        places |= {own, volume}
        del environment["NAMESRV_ADDR"]
        known = {*BrokerConfig.keys(), *StoreConfig.keys(), *GrpcConfig.keys()}
        assert unknown_variables(environment, known) == [], name
    assert len(places) == 6


def test_the_unit_starts_a_command_that_there_is() -> None:
    unit = configparser.ConfigParser(strict=False)
    unit.optionxform = str  # type: ignore[assignment, method-assign]
    unit.read_string((DOCKER / "pocketmq.service").read_text("utf-8"))
    program, role, *words = shlex.split(unit["Service"]["ExecStart"])
    assert Path(program).name == "pocketmq"
    options = parse(role, words)
    assert options.data == f"/var/lib/{unit['Service']['StateDirectory']}"
    assert unit["Install"]["WantedBy"] == "multi-user.target"


def test_the_unit_is_confined() -> None:
    """By systemd's own measure, 0 to 10; 3.0 is what an operator accepts without questions."""
    needed("systemd-analyze", "systemd")
    unit = str(DOCKER / "pocketmq.service")
    words = ["systemd-analyze", "security", "--offline=yes", "--threshold=30", "--no-pager", unit]
    done = subprocess.run(words, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-500:]
