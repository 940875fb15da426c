"""The brokers that a command of `pocketmq account` is about."""

from typing import TYPE_CHECKING

from pocketmq.cli.cluster import ClusterRefused

if TYPE_CHECKING:
    from pocketmq.admin import Admin
    from pocketmq.admin.types import ClusterBroker


async def brokers_of(
    admin: "Admin", cluster: str | None, broker: str | None
) -> list["ClusterBroker"]:
    """Return them, slaves too. Raises: ClusterRefused for an unknown one."""
    found = [
        each
        for each in await admin.site.brokers(cluster)
        if broker in (None, each.name, each.address)
    ]
    if not found:
        raise ClusterRefused(
            f"the name servers know no broker {broker!r}; see: pocketmq cluster list"
        )
    return found
