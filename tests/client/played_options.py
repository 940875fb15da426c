"""Options of the clients of the played cluster."""

from typing import Any

from tests.client.fake_cluster import FakeCluster


def options(cluster: FakeCluster, **more: str) -> dict[str, Any]:
    return {
        "name_server": "10.0.0.1:9876",
        "clock": cluster.clock,
        "transport": cluster.transport,
        "client_ip": "10.9.9.9",
        **more,
    }
