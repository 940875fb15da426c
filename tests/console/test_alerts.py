"""The alerts of docker/prometheus, tried by Prometheus itself: what fires, and what must not."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx

from pocketmq.client import Message, Producer
from tests.console.console_peer import Site, site
from tests.interop.conftest import or_missing
from tests.interop.toolchain import program
from tests.kit.ports import free_ports
from tests.kit.waiting import until_async

ALERTS = Path(__file__).parents[2] / "docker" / "prometheus" / "alerts.yml"
INSTALL = "Prometheus (Debian: apt install prometheus)"
SYMPTOM = 'pocketmq_group_symptoms{consumer_group="%s",symptom="%s",severity="%s",topic=""}'
MESSAGES = 'pocketmq_group_messages{node_id="b",consumer_group="%s",topic="T",state="%s"}'
LOST = "group sick has lost 3 messages of T; see pocketmq group balance --list lost"
SICK = {"consumer_group": "sick", "symptom": "NOBODY_ONLINE"}
# Ten minutes of a healthy site, and of a sick one: a value a minute.
SERIES = [
    {"series": SYMPTOM % ("idle", "NOBODY_ONLINE", "info"), "values": "1x10"},
    {"series": SYMPTOM % ("sick", "NOBODY_ONLINE", "warning"), "values": "1x10"},
    {"series": MESSAGES % ("idle", "waiting"), "values": "7x10"},
    {"series": MESSAGES % ("idle", "lost"), "values": "0x10"},
    {"series": MESSAGES % ("sick", "lost"), "values": "0x5 3x5"},
    {"series": 'pocketmq_store_writable{node_id="good"}', "values": "1x10"},
    {"series": 'pocketmq_store_writable{node_id="full"}', "values": "0x10"},
    {"series": 'pocketmq_disk_used_ratio{node_id="good"}', "values": "0.5x10"},
    {"series": 'rocketmq_send_to_dlq_messages_total{consumer_group="idle"}', "values": "3x10"},
]


def expected(alert: str, *labels: dict[str, str]) -> dict[str, Any]:
    found = [{"exp_labels": each} for each in labels]
    return {"eval_time": "10m", "alertname": alert, "exp_alerts": found}


def test_the_rules_tell_sick_from_healthy(tmp_path: Path) -> None:
    """promtool plays ten minutes: notes about healthy groups alarmed for ever."""
    promtool = or_missing(lambda: program("promtool", INSTALL))
    rules: dict[str, Any] = {
        "rule_files": [str(ALERTS)],
        "evaluation_interval": "1m",
        "tests": [{"interval": "1m", "input_series": SERIES, "alert_rule_test": []}],
    }
    summary = "group sick: NOBODY_ONLINE; see pocketmq group doctor"
    full = "broker full stores nothing: its disk is full or has failed; see /health"
    fired = expected("GroupSick", {**SICK, "severity": "warning"})
    fired["exp_alerts"][0]["exp_annotations"] = {"summary": summary}
    refused = expected("StoreRefusesMessages", {"node_id": "full", "severity": "critical"})
    refused["exp_alerts"][0]["exp_annotations"] = {"summary": full}
    labels = {"node_id": "b", "consumer_group": "sick", "topic": "T", "severity": "warning"}
    lost = expected("MessagesLost", labels)
    lost["exp_alerts"][0]["exp_annotations"] = {"summary": LOST}
    rules["tests"][0]["alert_rule_test"] = [
        fired,
        refused,
        lost,
        *map(expected, ("DiskFills", "DeadLetters", "LagGrows", "GroupLosesMessages")),
    ]
    script = tmp_path / "test.yml"
    script.write_text(json.dumps(rules))
    done = subprocess.run([promtool, "test", "rules", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


@asynccontextmanager
async def prometheus(folder: Path, *targets: str) -> AsyncIterator[httpx.AsyncClient]:
    """A server that scrapes each second, and whose alerts need no time to fire."""
    rules = [
        "" if line.strip().startswith("for:") else line for line in ALERTS.read_text().splitlines()
    ]
    (folder / "alerts.yml").write_text("\n".join(rules))
    config = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": ["alerts.yml"],
        "scrape_configs": [
            {"job_name": "pocketmq", "static_configs": [{"targets": list(targets)}]}
        ],
    }
    (folder / "prometheus.yml").write_text(json.dumps(config))
    [port] = free_ports(1)
    server = await asyncio.create_subprocess_exec(
        or_missing(lambda: program("prometheus", INSTALL)),
        f"--config.file={folder / 'prometheus.yml'}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--log.level=error",
    )
    try:
        address = f"http://127.0.0.1:{port}"
        async with httpx.AsyncClient(base_url=address, trust_env=False) as http:
            yield http
    finally:
        if server.returncode is None:
            server.terminate()
        await server.wait()


async def wait_with(running: Site, group: str, messages: int) -> None:
    """A group that is offline, with messages that wait for it."""
    await running.user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
    await running.user.do("PUT", f"/groups/{group}", {})
    running.brokers["b"].parts.tables.offsets.commit(group, "T", 0, 0, "test")
    async with Producer("P", name_server=running.name_server) as producer:
        for _ in range(messages):
            await producer.send(Message("T", b"x"))


async def test_a_prometheus_server_alerts_on_the_sick_site_alone(tmp_path: Path) -> None:
    or_missing(lambda: program("prometheus", INSTALL))
    folder = tmp_path / "prometheus"
    folder.mkdir()
    async with (
        site(tmp_path / "sick", doctor_offline_time=0) as sick,
        site(tmp_path / "healthy") as healthy,
    ):
        await wait_with(sick, "sick", 2)
        await wait_with(healthy, "idle", 2)
        targets = [each.console.address.partition("://")[2] for each in (sick, healthy)]
        async with prometheus(folder, *targets) as http:

            async def alerts() -> Any:
                try:
                    found = (await http.get("/api/v1/alerts")).json()["data"]["alerts"]
                    query = {"query": "pocketmq_group_symptoms"}
                    seen = (await http.get("/api/v1/query", params=query)).json()["data"]["result"]
                except (httpx.HTTPError, KeyError, ValueError):
                    return None
                # The disk is this machine's, and may really be full.
                found = [each for each in found if each["labels"]["alertname"] != "DiskFills"]
                groups = {each["metric"]["consumer_group"] for each in seen}
                return found if found and groups == {"sick", "idle"} else None

            found = await until_async(alerts)
    assert [
        (each["labels"]["alertname"], each["labels"]["consumer_group"], each["state"])
        for each in found
    ] == [("GroupSick", "sick", "firing")]
