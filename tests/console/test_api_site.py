"""The cluster by the console's API: overview, charts, brokers, settings, topics, name servers."""

import json
import logging
from pathlib import Path
from typing import Any

import pytest

from pocketmq.client import Credentials, Message, Producer
from pocketmq.console.config import ConsoleConfig
from pocketmq.console.server import ConsoleServer
from tests.console.console_peer import browser, site
from tests.kit.waiting import until_async


async def test_figures_follow_the_traffic_and_feed_the_charts(tmp_path: Path) -> None:
    """Overview: rates, totals, history, live figures."""
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 2, "writeQueues": 2})
        async with Producer("P", name_server=running.name_server) as producer:

            async def busy() -> Any:
                await producer.send(Message("T", b"x"))
                found = await user.read("/overview")
                top = [each for each in found["topTopics"] if each["in"] > 0]
                return found if found["rates"]["in"] > 0 and top else None

            found = await until_async(busy)
        broker = found["brokers"][0]
        assert (broker["broker"], broker["role"], broker["isPocketMq"]) == ("b", "MASTER", True)
        assert broker["reachable"]
        assert 0 < broker["diskRatio"] < 1
        assert found["totals"]["inToday"] > 0
        assert found["topTopics"][0]["topic"] == "T"
        for kind, name, figure in (
            ("cluster", "cluster", "in"),
            ("brokers", "b", "in"),
            ("topics", "T", "in"),
        ):
            history = await user.read("/history", kind=kind, name=name)
            series = history["series"][0]
            assert series["name"] == name
            assert len(series["values"][figure]) == len(history["times"])
            assert any(value for value in series["values"][figure])
        assert (await user.get("/history", kind="odd")).status == 400


async def test_live_figures_are_pushed_until_the_console_ends(tmp_path: Path) -> None:
    """API.md, live: Server-Sent Events; an open stream does not hold up the end."""
    async with site(tmp_path) as running:
        async with running.user.http.stream("GET", "/api/live") as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            events = 0
            last = 0
            async for line in stream.aiter_lines():
                if line.startswith("data: "):
                    at = json.loads(line.removeprefix("data: "))["at"]
                    assert at > last
                    last = at
                    events += 1
                    if events == 2:
                        await running.console.__aexit__(None, None, None)
            assert events >= 2


async def test_settings_show_their_meaning_and_allowed_changes(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Settings: allow-listed, asked once, logged with the user and the change (CVE-2023-33246)."""
    caplog.set_level(logging.INFO)
    async with site(tmp_path) as running:
        user = running.user
        found = await user.read("/brokers/b")
        settings = {each["name"]: each for each in found["settings"]}
        assert settings["longPollingEnable"]["changeable"] is True
        assert settings["longPollingEnable"]["helpLanguage"] == "en"
        chinese = await user.read("/brokers/b", language="zh")
        [row] = [each for each in chinese["settings"] if each["name"] == "longPollingEnable"]
        assert (row["help"], row["helpLanguage"]) == ("没有消息时挂起拉取请求。", "zh")
        assert settings["longPollingEnable"]["choices"] == ["true", "false"]
        assert settings["storePathRootDir"]["changeable"] is False
        assert settings["shortPollingTimeMills"]["unit"] == "ms"
        assert found["runtime"]["brokerVersionDesc"].startswith("V")
        assert found["summary"]["broker"] == "b"
        path = "/brokers/b/settings"
        for wrong, status in (
            ({"nonsense": "1"}, 400),
            ({"storePathRootDir": "/etc"}, 403),
            ({"shortPollingTimeMills": "soon"}, 400),
            ({}, 400),
        ):
            assert (await user.call("PUT", path, {"settings": wrong})).status == status
        asked = await user.ask("PUT", path, {"settings": {"longPollingEnable": False}})
        assert asked["steps"] == [{"name": "longPollingEnable", "from": "true", "to": "false"}]
        await user.do("PUT", path, {"settings": {"longPollingEnable": False}})
        assert not running.brokers["b"].config.long_polling_enable
        assert "action=broker.settings broker='b'" in caplog.text
        await user.do("PUT", "/brokers/b/writable", {"writable": False})
        await user.do("PUT", "/brokers/b/writable", {"writable": True})
        assert (await user.get("/brokers/none")).json["code"] == "NOT_FOUND"


async def test_topics_are_made_changed_listed_by_type_and_deleted(tmp_path: Path) -> None:
    """Topics: create, change, delete, route, status, config, types, pages."""
    async with site(tmp_path, brokers=("b", "c")) as running:
        user = running.user
        made = await user.do("PUT", "/topics/T", {"readQueues": 3, "writeQueues": 3})
        assert made == {"brokers": ["b", "c"], "created": True}
        await user.do("PUT", "/topics/One", {"readQueues": 1, "writeQueues": 1, "brokers": ["c"]})
        asked = await user.ask("PUT", "/topics/T", {"readQueues": 2})
        assert "Queues 2 to 2 will not be read any more" in asked["willDo"]
        await user.do("PUT", "/topics/T", {"perm": 4})
        found = await user.read("/topics/T")
        assert [(each["broker"], each["perm"]) for each in found["configs"]] == [("b", 4), ("c", 4)]
        assert [each["readQueues"] for each in found["configs"]] == [3, 3]
        assert len(found["status"]) == 6
        assert {each["broker"] for each in found["route"]["brokers"]} == {"b", "c"}
        await user.do("PUT", "/groups/G", {})
        listed = await user.read("/topics", type="NORMAL")
        assert [each["topic"] for each in listed["items"]] == ["One", "T"]
        assert listed["counts"]["SYSTEM"] > 3
        assert (await user.get("/topics", sort="odd")).status == 400
        page = await user.read("/topics", size=1, page=2, type="NORMAL")
        assert ([each["topic"] for each in page["items"]], page["total"]) == (["T"], 2)
        assert (await user.read("/topics", q="on", type="NORMAL"))["items"][0]["topic"] == "One"
        assert (await user.get("/topics", type="ODD")).status == 400
        for name in ("RMQ_SYS_TRANS_HALF_TOPIC", "b", "DefaultCluster"):
            refused = await user.call("DELETE", f"/topics/{name}")
            assert (refused.status, refused.json["code"]) == (403, "FORBIDDEN"), name
        assert (await user.call("PUT", "/topics/a%20b", {})).status == 400
        nobody = await user.call("PUT", "/topics/N", {"brokers": ["none"]})
        assert nobody.json["code"] == "NOT_FOUND"
        read_only = await user.call("POST", "/topics/T/messages", {"body": "x"})
        assert read_only.status in (403, 404)
        split = {"body": "x", "properties": {"a": "b\x01c"}}
        assert (await user.call("POST", "/topics/One/messages", split)).status == 400
        done = await user.do("DELETE", "/topics/T")
        assert done == {"brokers": ["b", "c"]}
        assert (await user.get("/topics/T")).json["code"] == "NOT_FOUND"


async def test_a_broker_that_is_gone_is_a_warning_and_the_rest_goes_on(tmp_path: Path) -> None:
    """Overview: warnings; one console over several brokers."""
    async with site(tmp_path, brokers=("b", "c")) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 2, "writeQueues": 2})
        await user.do("PUT", "/groups/G", {})
        # Its port closes, and it stays registered: as after a crash, for up to two minutes.
        await running.brokers["c"].server.__aexit__(None, None, None)

        async def warned() -> Any:
            warnings = (await user.read("/overview"))["warnings"]
            return [each for each in warnings if each["kind"] == "BROKER_UNREACHABLE"]

        found = await until_async(warned)
        assert [(each["subject"], each["severity"]) for each in found] == [("c", "error")]
        assert {each["broker"] for each in (await user.read("/topics/T"))["status"]} == {"b"}
        assert (await user.read("/groups", type="NORMAL"))["items"][0]["group"] == "G"
        assert (await user.get("/brokers/c")).json["code"] == "UNREACHABLE"
        assert {each["topic"] for each in (await user.read("/topics"))["items"]} >= {"T"}
        clusters = (await user.read("/cluster"))["clusters"]
        assert [each["reachable"] for each in clusters[0]["brokers"]] == [True, False]


_ACCOUNTS = """
accounts:
- accessKey: adminkey
  secretKey: adminsecret
  admin: true
- accessKey: readerkey
  secretKey: readersecret
  whiteRemoteAddress: 192.0.2.*
  defaultTopicPerm: DENY
  defaultGroupPerm: SUB
  topicPerms: [T=SUB, U=PUB|SUB]
  groupPerms: [secret=DENY]
"""


async def test_the_console_signs_or_names_the_missing_setting(tmp_path: Path) -> None:
    """The console is a client like any other; without keys it says which settings it lacks."""
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(_ACCOUNTS)
    async with site(tmp_path, acl_enable=True, acl_file=str(accounts)) as running:
        overview = await running.user.read("/overview")
        assert [each["reachable"] for each in overview["brokers"]] == [False]
        assert "consoleAccessKey" in overview["warnings"][0]["text"]
        refused = await running.user.get("/topics/BenchmarkTest")
        assert (refused.status, refused.json["code"]) == (403, "FORBIDDEN")
        assert "consoleAccessKey" in refused.json["whatToDo"]
        server = ConsoleServer(
            ConsoleConfig(port=0),
            {
                "name_server": running.name_server,
                "credentials": Credentials("adminkey", "adminsecret"),
            },
        )
        async with server, browser(server) as user:
            await user.open()
            overview = await user.read("/overview")
            assert [each["reachable"] for each in overview["brokers"]] == [True]
            await user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
            await user.do("PUT", "/topics/Other", {"readQueues": 1, "writeQueues": 1})
            for group in ("open", "secret"):
                await user.do("PUT", f"/groups/{group}", {})
            [told] = (await user.read("/acl"))["brokers"]
            assert told["enabled"]
            admin, reader = told["accounts"]
            assert (admin["accessKey"], admin["admin"]) == ("adminkey", True)
            assert reader["topicPerms"] == ["T=SUB", "U=PUB|SUB"]
            assert reader["groupPerms"] == ["secret=DENY"]
            assert (reader["whiteAddress"], reader["defaultGroupPerm"]) == ("192.0.2.*", "SUB")
            assert "readersecret" not in json.dumps(told)
            rights = await user.read("/acl/b/readerkey", size=200)
            may = {each["name"]: (each["publish"], each["subscribe"]) for each in rights["items"]}
            assert may["T"] == (False, True)
            assert may["Other"] == (False, False)
            assert (may["open"], may["secret"]) == ((None, True), (None, False))
            rights = await user.read("/acl/b/adminkey", q="Other")
            assert [(each["publish"], each["subscribe"]) for each in rights["items"]] == [
                (True, True)
            ]
            assert rights["admin"]
            assert (await user.get("/acl/b/absent")).status == 404


async def test_without_accounts_the_console_says_access_is_open(tmp_path: Path) -> None:
    async with site(tmp_path) as running:
        [told] = (await running.user.read("/acl"))["brokers"]
        assert (told["enabled"], told["accounts"], told["error"]) == (False, [], None)


async def test_the_name_servers_table_is_shown_and_changed(tmp_path: Path) -> None:
    """Name server KV."""
    async with site(tmp_path) as running:
        user = running.user
        rows = (await user.read("/nameservers"))["items"]
        assert [(each["address"], each["reachable"]) for each in rows] == [
            (running.name_server, True)
        ]
        assert rows[0]["settings"]
        entry = {"namespace": "N", "key": "k", "value": "v"}
        await user.do("PUT", "/kv", entry)
        assert (await user.read("/kv", namespace="N"))["items"] == [{"key": "k", "value": "v"}]
        asked = await user.ask("PUT", "/kv", {**entry, "value": "w"})
        assert "'w' instead of 'v'" in asked["willDo"]
        await user.do("PUT", "/kv", {**entry, "value": "w"})
        await user.do("DELETE", "/kv?namespace=N&key=k")
        assert (await user.read("/kv", namespace="N"))["items"] == []
        assert (await user.call("DELETE", "/kv?namespace=N&key=k")).status == 404


async def test_roles_are_shown_and_changed_with_a_confirmation(tmp_path: Path) -> None:
    """Replicas: what is wrong, in words; demote and promote, each asked once."""
    async with site(tmp_path, broker_role="SYNC_MASTER") as running:
        user = running.user

        async def status() -> dict[str, Any]:
            [row] = (await user.read("/replicas"))["items"]
            found: dict[str, Any] = row["status"]
            return found

        assert "SYNC_MASTER has 0 slaves in sync" in (await status())["trouble"]
        assert (await user.call("PUT", "/brokers/b/role", {"act": "elect"})).status == 400
        first = await user.call("PUT", "/brokers/b/role", {"act": "demote", "newBrokerId": 2})
        assert "takes no more messages" in first.json["willDo"]
        assert (await status())["role"] == "SYNC_MASTER"
        await user.do("PUT", "/brokers/b/role", {"act": "demote", "newBrokerId": 2})
        assert (await status())["brokerId"] == 2
        wanted = {"act": "promote", "brokerId": 2, "role": "ASYNC_MASTER"}
        await user.do("PUT", "/brokers/b/role", wanted)
        assert (await status())["role"] == "ASYNC_MASTER"
