"""Name servers that are found by HTTP."""

import asyncio
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from pocketmq.client import Message, NoRoute, Producer
from pocketmq.client.network.top_addressing import NameServersNotFound, look_up
from pocketmq.client.options import ClientOptions
from tests.client.fake_cluster import FakeCluster
from tests.client.played_options import options
from tests.client.virtual_time import LoopClock, run_virtual


class Site:
    """Answers GET with what stands in `answer`."""

    def __init__(self) -> None:
        self.answer = b"127.0.0.1:9876;127.0.0.2:9876\n"
        self.status = 200
        self.asked: list[str] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                site.asked.append(self.path)
                self.send_response(site.status)
                self.end_headers()
                self.wfile.write(site.answer)

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}/rocketmq/nsaddr"


@pytest.fixture
def site() -> Iterator[Site]:
    made = Site()
    thread = threading.Thread(target=made.server.serve_forever, args=(0.05,))
    thread.start()
    yield made
    made.server.shutdown()
    thread.join()
    made.server.server_close()


def test_an_url_with_a_path_is_asked_for_the_addresses(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As rocketmq.namesrv.domain; also from NAMESRV_ADDR; a plain http address is an address."""
    config = ClientOptions(name_server=site.url)
    assert config.name_servers == ("127.0.0.1:9876", "127.0.0.2:9876")
    assert config.name_server_url == site.url
    monkeypatch.setenv("NAMESRV_ADDR", site.url)
    assert ClientOptions().name_servers == config.name_servers
    assert site.asked == ["/rocketmq/nsaddr"] * 2
    plain = ClientOptions(name_server="http://127.0.0.1:9876")
    assert (plain.name_servers, plain.name_server_url) == (("127.0.0.1:9876",), None)


def test_an_answer_that_names_none_says_what_is_wanted(site: Site) -> None:
    """It names the URL, the reason, and how an answer looks."""
    site.answer = b"\n"
    with pytest.raises(
        NameServersNotFound, match=r"/rocketmq/nsaddr named none \(an empty answer\)"
    ):
        look_up(site.url)
    site.status = 503
    with pytest.raises(NameServersNotFound, match=r"503.*host:9876;other:9876"):
        look_up(site.url)
    nobody = site.url.replace(f":{site.server.server_port}", ":1")
    with pytest.raises(NameServersNotFound, match="refused"):
        look_up(nobody)


def test_name_servers_that_move_are_found_again(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked again after 10 s, then every two minutes; a failure keeps what is known."""
    answers = iter(["10.0.0.9:9876", "10.0.0.1:9876", None, "10.0.0.1:9876"])
    asked_at: list[int] = []

    def played(url: str) -> str:
        answer = next(answers)
        if answer is None:
            raise NameServersNotFound(url, "down")
        return answer

    async def at_once(function: object, *words: object, **more: object) -> object:
        # A thread would not see virtual time pass.
        if function is played:
            asked_at.append(LoopClock().monotonic_ms())
        return function(*words, **more)  # type: ignore[operator]

    monkeypatch.setattr("pocketmq.client.network.config.look_up", played)
    monkeypatch.setattr("pocketmq.client.network.instance.look_up", played)
    monkeypatch.setattr("pocketmq.client.network.instance.asyncio.to_thread", at_once)

    async def main() -> None:
        cluster = FakeCluster(LoopClock(), T=1)
        made = {**options(cluster), "name_server": site.url}
        async with Producer("p", **made) as producer:
            instance = producer._running().instance
            assert instance.api.requests.name_servers == ("10.0.0.9:9876",)
            await asyncio.sleep(11)
            assert instance.api.requests.name_servers == ("10.0.0.1:9876",)
            await asyncio.sleep(120)
            assert instance.api.requests.name_servers == ("10.0.0.1:9876",)
            await producer.send(Message("T", b"x"))
            cluster.auto_create = False
            with pytest.raises(NoRoute, match=r"10\.0\.0\.1:9876"):
                await producer.send(Message("Other", b"x"))
            await asyncio.sleep(120)
        assert asked_at == [10_000, 130_000, 250_000]

    run_virtual(main)
