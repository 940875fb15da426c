"""Names that others choose, in Chromium: of clients, groups, topics, brokers, clusters, accounts, settings.

The name server believes every broker that registers, and a broker every client that sends a heartbeat: their
names are not checked as the names of topics and groups are that an operator makes.
"""

import asyncio
import json
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import parse_qs, quote, urlsplit

from pocketmq.remoting.codes import RequestCode, ResponseCode
from pocketmq.remoting.requests import PocketRequestCode
from tests.broker.serving import At, Peer
from tests.console.browser import Browser
from tests.console.console_peer import Site, site
from tests.console.looks import TOO_WIDE
from tests.kit.waiting import until

# Markup, quotes, templates, what separates parts of an address, a direction and a control character.
EVIL = "<img src=x onerror=\"document.title='taken'\">'\"`${1}{{1}}&amp;%2e/../#?a=b&c \u202eflow\u0007"
# As long as the name server takes one.
LONG = f"{'L' * 200}<script>document.title='taken'</script>{'W' * 783}"
# As long as a name of a group may be.
GROUP = EVIL + "g" * (120 - len(EVIL))
ACCOUNTS = f"""
globalWhiteRemoteAddresses: [127.0.0.1]
accounts:
- {json.dumps({"accessKey": EVIL, "secretKey": "12345678", "topicPerms": [f"{EVIL.replace('=', '~')}=PUB"]})}
"""
# Those that show them.
PAGES = (
    "/",
    "/cluster",
    "/replicas",
    "/producers",
    "/delays",
    "/schedules",
    "/settings",
    "/acl",
    "/group?name=g1",
    "/topic?name=Orders&tab=consumers",
    f"/name-server?namespace={quote(EVIL)}",
)
# Elements that only a name could have made; where else the page asked something.
TAKEN = """
const made = document.querySelectorAll('main :is(img, script), [onerror]');
const asked = performance.getEntriesByType('resource').map(({name}) => name);
return [...[...made].map(({outerHTML}) => outerHTML),
  ...asked.filter((each) => !each.startsWith(location.origin)),
  ...(document.title === 'taken' ? ['it ran'] : [])];
"""
TEXT = "return document.querySelector('main').textContent"
SCROLLS = """
const {scrollWidth, clientWidth} = document.documentElement;
return scrollWidth > clientWidth + 1 ? [scrollWidth] : [];
"""
LINKS = """
return [...document.querySelectorAll('main a[href]')].map((a) => [a.getAttribute('href'), a.textContent]);
"""


async def ask(peer: Peer, code: int, ext: dict[str, str], body: object = None) -> None:
    answer = await peer.ask(code, ext, b"" if body is None else json.dumps(body).encode())
    assert answer.code == ResponseCode.SUCCESS, answer.remark


async def spoil(running: Site, leave: AsyncExitStack) -> None:
    """Say the names to every listener."""
    await running.user.do("PUT", "/topics/Orders", {"readQueues": 2, "writeQueues": 2})
    subscriptions = {"Orders": f"a || {EVIL.replace(' ', '_')}", EVIL: "*"}
    for group, client, producer in (("g1", EVIL, EVIL), ("g1", LONG, LONG), (GROUP, "c3", "p3")):
        peer = await leave.enter_async_context(await Peer.at(running.brokers["b"]))
        beat = peer.send_heartbeat(group, subscriptions, client_id=client, producer=producer)
        answer = await peer.answer(beat)
        assert answer.code == ResponseCode.SUCCESS, answer.remark
        subscriptions = {"Orders": "*"}
    peer = await leave.enter_async_context(await Peer.at(running.brokers["b"]))
    for name in (EVIL, LONG):
        # Others are refused.
        printable = "".join(filter(str.isprintable, name))[:255]
        schedule = {"topic": "Orders", "name": printable}
        await ask(peer, PocketRequestCode.CREATE_SCHEDULE, schedule, {"cron": "@daily"})
    peer = await leave.enter_async_context(await Peer.at(At(running.name_server)))
    table = {EVIL: {"topicName": EVIL, "readQueueNums": 1, "writeQueueNums": 1, "perm": 6}}
    # One is answered for by the real broker, the other by no server.
    _, _, port = running.brokers["b"].listen_address.rpartition(":")
    for name, address in ((EVIL, f"localhost:{port}"), (LONG, "127.0.0.1:1")):
        await ask(
            peer,
            RequestCode.REGISTER_BROKER,
            {
                "brokerName": name,
                "brokerAddr": address,
                "clusterName": name,
                "haServerAddr": "",
                "brokerId": "0",
            },
            {
                "topicConfigSerializeWrapper": {
                    "dataVersion": {"counter": 1, "timestamp": 1},
                    "topicConfigTable": table,
                },
                "filterServerList": [],
            },
        )
        kept = {"namespace": name, "key": name, "value": name}
        await ask(peer, RequestCode.PUT_KV_CONFIG, kept)


def look(browser: Browser, base: str) -> None:
    """Look at the pages at both widths, and at those that a name leads to."""
    waiting = list(PAGES)
    seen = set(waiting)
    for path in waiting:
        browser.driver.get(base + path)
        browser.settle()
        until(lambda: EVIL in browser.run(TEXT), f"{path} shows the name")
        assert browser.run(TAKEN) == [], path
        for width in (1_280, 375):
            screen = {"width": width, "height": 812, "deviceScaleFactor": 1, "mobile": width < 400}
            browser.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", screen)
            assert browser.run(TOO_WIDE) + browser.run(SCROLLS) == [], (path, width)
        for link, text in browser.run(LINKS):
            if EVIL in text and link not in seen:
                seen.add(link)
                waiting.append(link)
                assert [text] in parse_qs(urlsplit(link).query).values(), link
    assert {urlsplit(link).path for link in seen - set(PAGES)} == {"/broker", "/acl", "/group"}


async def test_hostile_names_are_text_and_link_where_they_say(
    browser: Browser, tmp_path: Path
) -> None:
    """Nothing of them runs, is asked for elsewhere, or makes a page wider."""
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS, encoding="utf-8")
    async with AsyncExitStack() as leave:
        running = await leave.enter_async_context(
            site(tmp_path, acl_enable=True, acl_file=str(accounts))
        )
        await spoil(running, leave)
        try:
            await asyncio.to_thread(look, browser, running.console.address)
        finally:
            browser.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
