"""Messages by the console's API: any body; pages; track; dead letters; delays; trace."""

import asyncio
import json
from base64 import b64decode, b64encode
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from pocketmq.admin import Admin
from pocketmq.admin.schedules import Schedule
from pocketmq.cli.message_files import read_messages
from pocketmq.client import (
    ConsumeContext,
    ConsumeResult,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from pocketmq.console.messages.message_json import BODY_SIZE_MAX
from pocketmq.remoting.clock import SystemClock
from pocketmq.remoting.codes import RequestCode
from tests.broker.serving import At, Peer
from tests.console.console_peer import Site, User, site
from tests.console.test_api_groups import member
from tests.kit.waiting import until_async

BINARY = bytes(range(256))


async def _send(user: User, topic: str, body: bytes | str, **fields: Any) -> dict[str, Any]:
    if isinstance(body, bytes):
        fields = {**fields, "body": b64encode(body).decode(), "bodyEncoding": "base64"}
    else:
        fields = {**fields, "body": body}
    found: dict[str, Any] = await user.do("POST", f"/topics/{topic}/messages", fields)
    assert found["status"] == "SEND_OK"
    return found


async def _all_pages(user: User, path: str, **query: Any) -> list[Any]:
    items: list[Any] = []
    cursor = None
    while True:
        more: dict[str, str] = {} if cursor is None else {"cursor": cursor}
        found = await user.read(path, **query, **more)
        assert found["items"] or found["cursor"] is None
        items += found["items"]
        cursor = found["cursor"]
        if cursor is None:
            return items


async def test_a_body_of_any_bytes_is_sent_and_seen_whole(tmp_path: Path) -> None:
    """Messages: text, JSON, hex; binary and large bodies are safe."""
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        large = ("ä" * (BODY_SIZE_MAX // 2 + 5)).encode()
        cases = {"plain": "<script>alert(1)</script>", "json": '{"a": [1]}'}
        for key, text in cases.items():
            sent = await _send(user, "T", text, keys=key, tag="t", properties={"own": "<b>"})
            found = await user.read(f"/messages/{sent['msgId']}", topic="T")
            assert found["body"]["text"] == text
            assert found["body"]["json"] == (key == "json")
            assert (found["tags"], found["keys"]) == ("t", key)
            assert found["properties"]["own"] == "<b>"
            assert found["offsetMsgId"] == sent["offsetMsgId"]
        sent = await _send(user, "T", BINARY)
        found = await user.read(f"/messages/{sent['offsetMsgId']}")
        assert found["body"]["text"] is None
        assert b64decode(found["body"]["base64"]) == BINARY
        sent = await _send(user, "T", b"x" + large)
        found = await user.read(f"/messages/{sent['msgId']}", topic="T")
        assert (found["body"]["size"], found["body"]["truncated"]) == (len(large) + 1, True)
        # The cut goes through the middle of a letter, which is left out of the text.
        assert found["body"]["text"] == "x" + "ä" * ((BODY_SIZE_MAX - 1) // 2)
        whole = await user.get(f"/messages/{sent['msgId']}/body", topic="T")
        assert whole.content == b"x" + large
        assert whole.headers["content-disposition"].startswith("attachment")
        assert whole.headers["content-type"] == "application/octet-stream"


async def test_messages_page_newest_first_over_all_brokers(tmp_path: Path) -> None:
    """Messages by topic and time: each once, in order, while new ones arrive."""
    async with site(tmp_path, brokers=("b", "c")) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 3, "writeQueues": 3})
        async with Producer("p", name_server=running.name_server) as producer:
            for number in range(50):
                await producer.send(Message("T", str(number).encode(), keys=f"k{number}"))
            first = await user.read("/messages", topic="T", size=7)
            assert first["total"] == 50
            # What comes later does not shift the pages.
            await producer.send(Message("T", b"later"))
        items = first["items"]
        cursor = first["cursor"]
        while cursor is not None:
            page = await user.read("/messages", topic="T", size=7, cursor=cursor)
            items, cursor = items + page["items"], page["cursor"]
        assert sorted(int(each["body"]["text"]) for each in items) == list(range(50))
        times = [each["storeTimestamp"] for each in items]
        assert times == sorted(times, reverse=True)
        middle = times[25]
        newer = await _all_pages(user, "/messages", topic="T", begin=middle, size=11)
        assert len(newer) == sum(time >= middle for time in times) + 1
        older = await _all_pages(user, "/messages", topic="T", end=middle, size=11)
        assert len(older) == sum(time < middle for time in times)
        by_key = await user.read("/messages", topic="T", key="k7")
        assert [each["body"]["text"] for each in by_key["items"]] == ["7"]
        assert (await user.read("/messages", topic="T", key="none"))["items"] == []
        place = next(each for each in items if each["body"]["text"] == "7")
        from_place = await _all_pages(
            user, "/messages", topic="T", broker=place["broker"], queueId=place["queueId"], size=2
        )
        in_queue = [
            each
            for each in items
            if (each["broker"], each["queueId"]) == (place["broker"], place["queueId"])
        ]
        offsets = [each["queueOffset"] for each in from_place]
        assert offsets[: len(in_queue)] == list(range(len(in_queue)))
        assert (await user.read("/trace", id="x"))["traces"] == []
        broken = await user.get("/messages", topic="T", cursor="bm9uZQ==")
        assert broken.json["code"] == "BAD_REQUEST"


async def test_an_id_leads_only_to_brokers_of_this_site(tmp_path: Path) -> None:
    """Conventions, security: an offset id names an address; the console must not call any at all."""
    async with site(tmp_path) as running:
        foreign = "7F000001" + "00000009" + "0" * 16
        reply = await running.user.get(f"/messages/{foreign}")
        assert (reply.status, reply.json["code"]) == (404, "NOT_FOUND")
        assert "127.0.0.1:9" in reply.json["error"]
        reply = await running.user.get("/messages/nonsense")
        assert (reply.status, reply.json["code"]) == (400, "BAD_REQUEST")
        await running.user.do("PUT", "/topics/T", {})
        reply = await running.user.get("/messages/nonsense", topic="T")
        assert (reply.status, reply.json["code"]) == (404, "NOT_FOUND")


async def test_a_track_has_type_and_verdict_and_direct_consumption(
    tmp_path: Path,
) -> None:
    """S88, S89: track with PocketMQ's verdict; consume directly."""
    async with site(tmp_path, long_polling_enable=False) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        async with member(running, "A", "tagA") as got:
            sent = [await _send(user, "T", body, tag=body) for body in ("tagA", "tagB")]

            async def tracked(number: int) -> Any:
                found = await user.read(f"/messages/{sent[number]['msgId']}/track", topic="T")
                return {each["group"]: each for each in found["tracks"]}.get("S")

            async def verdict_is(number: int, wanted: str) -> Any:
                found = await tracked(number)
                return found if found and found["verdict"] == wanted else None

            consumed = await until_async(lambda: verdict_is(0, "CONSUMED"))
            assert consumed["trackType"] == "CONSUMED"
            assert consumed["deliveries"][0]["clientId"] == "127.0.0.1@A"
            filtered = await until_async(lambda: verdict_is(1, "FILTERED"))
            assert filtered["trackType"] == "CONSUMED_BUT_FILTERED"
            assert got == ["tagA"]
            path = f"/messages/{sent[0]['msgId']}/consume"
            body = {"topic": "T", "group": "S", "clientId": "127.0.0.1@A"}
            result = await user.do("POST", path, body)
            assert result["result"] == "CR_SUCCESS"
            assert got == ["tagA", "tagA"]
        reply = await user.call("POST", path, body)
        assert reply.status == 202
        reply = await user.call("POST", path, body, {"X-Confirm": reply.json["confirm"]})
        assert reply.status >= 400
        assert reply.json["error"]


async def _dead_letters(running: Site, count: int) -> None:
    """A group that fails at once, with no second try."""

    async def listener(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
        return ConsumeResult.RECONSUME_LATER

    consumer = PushConsumer(
        "D", listener=listener, name_server=running.name_server, max_reconsume_times=0
    )
    consumer.subscribe("T")
    async with consumer:
        for number in range(count):
            await _send(running.user, "T", f"dead {number}", keys=f"k{number}")

        async def all_dead() -> bool:
            items = (await running.user.read("/dlq"))["items"]
            return bool(items and items[0]["messages"] == count)

        await until_async(all_dead)


async def test_messages_of_other_brokers_show_while_one_is_down(tmp_path: Path) -> None:
    """One dead broker hid all that the others have, for as long as name servers knew it."""
    async with site(tmp_path, brokers=("b", "c")) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 2, "writeQueues": 2})
        sent = [await _send(user, "T", f"{number}", keys="k") for number in range(12)]
        living = {each["msgId"] for each in sent if each["broker"] == "b"}
        assert 0 < len(living) < len(sent)
        await running.brokers["c"].server.__aexit__(None, None, None)
        for query in ({}, {"key": "k"}):
            found = await user.read("/messages", topic="T", **query)
            assert {each["msgId"] for each in found["items"]} == living, query
            [left_out] = found["leftOut"]
            assert left_out["broker"] == "c", query
            assert "cannot connect" in left_out["error"], query
        first = await user.read("/messages", topic="T", size=1)
        second = await user.read("/messages", topic="T", size=1, cursor=first["cursor"])
        assert (len(second["items"]), second["leftOut"]) == (1, [])
        await running.brokers["b"].server.__aexit__(None, None, None)
        for query in ({}, {"key": "k"}):
            nobody = await user.get("/messages", topic="T", **query)
            assert (nobody.status, nobody.json["code"]) == (503, "UNREACHABLE"), query


async def test_a_broker_that_is_gone_is_named_and_no_bug(tmp_path: Path) -> None:
    async with site(tmp_path) as running:
        user = running.user
        table = {"topicConfigSerializeWrapper": {"topicConfigTable": {"T": {"topicName": "T"}}}}
        gone = {
            "brokerName": "gone",
            "brokerAddr": "127.0.0.1:1",
            "clusterName": "DefaultCluster",
            "haServerAddr": "",
            "brokerId": "0",
        }
        async with await Peer.at(At(running.name_server)) as peer:
            body = json.dumps(table).encode()
            assert (await peer.ask(RequestCode.REGISTER_BROKER, gone, body)).code == 0
            reply = await user.get("/messages", topic="T")
        assert reply.status == 503, reply.json
        assert "127.0.0.1:1" in reply.json["error"]


async def test_dead_letters_are_browsed_resent_and_exported(tmp_path: Path) -> None:
    """Dead letters: browse, resend one or many, export."""
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        assert (await user.read("/dlq"))["items"] == []
        await _dead_letters(running, 3)
        letters = (await user.read("/dlq/D"))["items"]
        assert sorted(each["body"]["text"] for each in letters) == ["dead 0", "dead 1", "dead 2"]
        assert {each["origin"]["topic"] for each in letters} == {"T"}
        for each in letters:
            assert (each["reconsumeTimes"], each["retryMaxTimes"], each["sentAgain"]) == (1, 16, [])
            assert each["reason"].startswith("to %DLQ%D: it failed 1 time, which is the limit")
            for msg_id in (each["msgId"], each["offsetMsgId"]):
                [found] = (await user.read("/dlq/D", id=msg_id))["items"]
                assert found == each
        assert (await user.read("/dlq/D", id="none"))["items"] == []
        exported = await user.get("/dlq/D/export")
        lines = [json.loads(line) for line in exported.content.splitlines()]
        assert sorted(b64decode(each["body"]["base64"]) for each in lines) == [
            b"dead 0",
            b"dead 1",
            b"dead 2",
        ]
        ids = [each["offsetMsgId"] for each in letters[:2]]
        asked = await user.ask("POST", "/dlq/D/resend", {"ids": ids})
        assert "2 dead letters" in asked["willDo"]
        result = await user.do("POST", "/dlq/D/resend", {"ids": [*ids, "no such id"]})
        assert (result["sent"], result["failed"]) == (2, 1)
        assert result["results"][2]["error"]

        async def marked() -> set[str]:
            items = (await user.read("/dlq/D"))["items"]
            return {each["offsetMsgId"] for each in items if each["sentAgain"]}

        await until_async(lambda: _equal(marked, set(ids)), "those that were sent again are marked")
        got: list[str] = []

        async def listener(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            got.extend(each.body.decode() for each in messages)
            return ConsumeResult.SUCCESS

        consumer = PushConsumer("D", listener=listener, name_server=running.name_server)
        consumer.subscribe("T")
        async with consumer:
            wanted = sorted(each["body"]["text"] for each in letters[:2])

            async def came() -> bool:
                return sorted(got) == wanted

            await until_async(came)

        async def warned() -> bool:
            rows = (await user.read("/overview"))["warnings"]
            return [each["subject"] for each in rows if each["kind"] == "DEAD_LETTERS"] == ["D"]

        await until_async(warned)


async def _equal(found: Callable[[], Awaitable[Any]], wanted: Any) -> bool:
    return bool(await found() == wanted)


async def test_what_a_search_found_is_exported_and_can_be_imported(tmp_path: Path) -> None:
    """Export by time and by key; the command line reads the file back, byte for byte."""
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        await _send(user, "T", BINARY, keys="binary")
        await _send(user, "T", "text", keys="text", tag="t")
        file = tmp_path / "found.jsonl"
        for query, bodies in (
            ({}, [BINARY, b"text"]),
            ({"key": "binary"}, [BINARY]),
            ({"end": 1}, []),
        ):
            exported = await user.get("/messages/export", topic="T", **query)
            assert "T.jsonl" in exported.headers["content-disposition"]
            file.write_bytes(exported.content)
            assert [each["body"] for each in read_messages(str(file))] == bodies
        assert (await user.get("/messages/export", topic="None")).status == 404


async def test_a_message_for_a_time_of_its_own_is_found_and_taken_back(tmp_path: Path) -> None:
    """Delays: the record that waits is shown, and after a recall it waits no more."""
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        async with Producer("P", name_server=running.name_server) as producer:
            due_ms = SystemClock().now_ms() + 3_600_000
            await producer.send(Message("T", b"later"), deliver_at_ms=due_ms)

        async def waiting() -> list[Any]:
            [broker] = (await user.read("/delays"))["brokers"]
            return list(broker["timer"]["next"])

        [row] = await until_async(waiting, "the message waits")
        stored = await user.read(f"/messages/{row['offsetMsgId']}")
        assert stored["properties"]["REAL_TOPIC"] == "T"
        body = {"broker": "b", "topic": "T", "recallHandle": row["recallHandle"]}
        asked = await user.ask("POST", "/delays/recall", body)
        assert "no group will receive it" in asked["willDo"]
        assert (await user.do("POST", "/delays/recall", body))["msgId"] == row["msgId"]
        await until_async(lambda: _equal(waiting, []), "nothing waits")
        wrong = {**body, "recallHandle": "nonsense"}
        reply = await user.call("POST", "/delays/recall", wrong)
        reply = await user.call(
            "POST", "/delays/recall", wrong, {"X-Confirm": reply.json["confirm"]}
        )
        assert reply.status == 502


async def test_what_waits_is_counted_by_level_and_shown_with_its_time(tmp_path: Path) -> None:
    """Delays pending."""
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {})
        for number in range(3):
            await _send(user, "T", f"later {number}", delayLevel=18)
        levels = (await user.read("/delays"))["brokers"][0]["levels"]
        assert len(levels) == 18
        last = levels[17]
        assert (last["name"], last["delayMs"], last["waiting"]) == ("2h", 7_200_000, 3)
        items = await _all_pages(user, "/delays/18", size=2)
        assert [each["body"]["text"] for each in items] == ["later 0", "later 1", "later 2"]
        assert {each["realTopic"] for each in items} == {"T"}
        assert all(each["due"] == each["storeTimestamp"] + 7_200_000 for each in items)
        assert (await user.get("/delays/19")).status == 404


async def test_a_trace_is_a_timeline_of_send_and_consumption(
    tmp_path: Path,
) -> None:
    """Trace timeline: from the records that clients leave."""
    async with site(tmp_path, trace_topic_enable=True) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        done = asyncio.Event()

        async def listener(messages: list[MessageExt], context: ConsumeContext) -> ConsumeResult:
            done.set()
            return ConsumeResult.SUCCESS

        consumer = PushConsumer("S", listener=listener, name_server=running.name_server, trace=True)
        consumer.subscribe("T")
        async with consumer:
            async with Producer("P", name_server=running.name_server, trace=True) as producer:
                sent = await producer.send(Message("T", b"traced", tags="t", keys="order-1"))
            await done.wait()
        for query in ({"id": sent.msg_id}, {"key": "order-1", "topic": "T"}):
            traces = (await user.read("/trace", **query))["traces"]
            assert [each["msgId"] for each in traces] == [sent.msg_id]
            trace = traces[0]
            assert (trace["topic"], trace["tags"], trace["keys"]) == ("T", "t", "order-1")
            spans = [(each["kind"], each["group"], each["status"]) for each in trace["spans"]]
            assert spans == [("PUB", "P", "SUCCESS"), ("SUB", "S", "SUCCESS")]
            assert trace["spans"][1]["end"] is not None
        assert (await user.read("/trace", id="none"))["traces"] == []


async def test_schedules_are_listed_paused_resumed_and_deleted(tmp_path: Path) -> None:
    async with site(tmp_path) as running:
        user = running.user
        await user.do("PUT", "/topics/T", {"readQueues": 1, "writeQueues": 1})
        async with Admin(name_server=running.name_server) as admin:
            due_ms = SystemClock().now_ms() + 3_600_000
            await admin.schedules.create(Schedule("s", "T", b"xyz", at_ms=due_ms))

        async def row() -> Any:
            [found] = (await user.read("/schedules"))["items"]
            return found

        found = await row()
        assert (found["topic"], found["next"], found["bodySize"]) == ("T", due_ms, 3)
        body = {"name": "s", "topic": "T", "act": "pause"}
        asked = await user.ask("POST", "/schedules/change", body)
        assert "until it is resumed" in asked["willDo"]
        await user.do("POST", "/schedules/change", body)
        assert (await row())["next"] is None
        await user.do("POST", "/schedules/change", {**body, "act": "resume"})
        assert (await row())["next"] == due_ms
        assert (await user.call("POST", "/schedules/change", {**body, "act": "x"})).status == 400
        await user.do("POST", "/schedules/change", {**body, "act": "delete"})
        assert (await user.read("/schedules"))["items"] == []
