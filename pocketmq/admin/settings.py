"""Settings and figures of brokers and name servers, and the name servers' key-value table."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from pocketmq.admin.cluster import Cluster
from pocketmq.client.errors import BrokerFailed, QueryNotFound
from pocketmq.remoting import admin_headers, fastjson
from pocketmq.remoting.codes import RequestCode
from pocketmq.remoting.errors import IllegalArgument, PocketMQError
from pocketmq.remoting.header import Header
from pocketmq.remoting.requests import PocketRequestCode
from pocketmq.remoting.settings import format_properties, parse_properties

# UPDATE_AND_CREATE_ACL_CONFIG_FAILED and its neighbours, RocketMQ 4.9.
_ACCOUNTS_REFUSED = (209, 210, 211)


@dataclass(slots=True)
class Counted:
    """A counter. tps: per second, in the last minute; minute: its sum then; hour: in 60 minutes; day: in 24
    hours, None if no broker counts it; answers: how many brokers answered; known: how many of them count it.
    """

    tps: float = 0.0
    minute: int = 0
    hour: int = 0
    day: int | None = None
    answers: int = 0
    known: int = 0


class SettingsAdmin:
    """The operations of `admin.settings`; brokers are named by `ip:port`."""

    def __init__(self, site: Cluster) -> None:
        self._site = site
        self._api = site.api

    async def runtime(self, address: str) -> dict[str, str]:
        """Return a broker's figures (GET_BROKER_RUNTIME_INFO)."""
        answer = await self._api.requests.ask(address, RequestCode.GET_BROKER_RUNTIME_INFO)
        table = fastjson.loads(answer.body).get("table") or {}
        return {str(name): str(value) for name, value in table.items()}

    async def broker(self, address: str) -> dict[str, str]:
        """Return a broker's settings."""
        answer = await self._api.requests.ask(address, RequestCode.GET_BROKER_CONFIG)
        return parse_properties(bytes(answer.body).decode("utf-8"))

    async def accounts(self, address: str) -> dict[str, Any]:
        """Return a broker's accounts: globalWhiteAddrs, plainAccessConfigs, in RocketMQ 4.9's field names.

        Raises: BrokerFailed where access is not checked; RequestNotSupported by brokers of 5.x.
        """
        answer = await self._api.requests.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG)
        return dict(fastjson.loads(answer.body))

    async def account_files(self, address: str) -> dict[str, dict[str, Any]]:
        """Return the files of a broker's accounts with their versions: counter, timestamp (ms).

        Raises: BrokerFailed where access is not checked; RequestNotSupported by brokers of 5.x.
        """
        answer = await self._api.requests.ask(address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO)
        told = (answer.ext or {}).get("allAclFileVersion") or "{}"
        return {str(name): dict(version) for name, version in fastjson.loads(told.encode()).items()}

    async def set_account(
        self, address: str, access_key: str, secret_key: str, **fields: Any
    ) -> None:
        """Make an account, or change the given fields: those of AclConfigHeader.

        Raises: IllegalArgument for what no broker would read.
        """
        header = admin_headers.AclConfigHeader(access_key, secret_key, **fields)
        await self._change_accounts(
            address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header, f"account {access_key!r}"
        )

    async def delete_account(self, address: str, access_key: str) -> None:
        """Raises: IllegalArgument if there is no such account."""
        header = admin_headers.DeleteAclConfigHeader(access_key)
        await self._change_accounts(
            address, RequestCode.DELETE_ACL_CONFIG, header, f"account {access_key!r}"
        )

    async def set_white_addresses(
        self, address: str, addresses: Iterable[str], file: str | None = None
    ) -> None:
        """Set from where requests need no signature; file: one of several with accounts.

        Raises: IllegalArgument.
        """
        header = admin_headers.GlobalWhiteAddrsHeader(",".join(addresses), file)
        code = RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
        await self._change_accounts(address, code, header, "addresses without a signature")

    async def _change_accounts(
        self, address: str, code: RequestCode, header: Header, what: str
    ) -> None:
        try:
            await self._api.requests.ask(address, code, header, about=what)
        except BrokerFailed as error:
            # Their codes mean something else since 5.0: the broker's words alone say what was wrong.
            if error.code not in _ACCOUNTS_REFUSED:
                raise
            raise IllegalArgument(f"{what} at {address}: {error.remark}") from error

    async def update_broker(self, address: str, **settings: str) -> None:
        """Change runtime settings of a broker. Raises: NoPermission, BrokerFailed."""
        body = format_properties(settings).encode("utf-8")
        await self._api.requests.ask(address, RequestCode.UPDATE_BROKER_CONFIG, None, body)

    async def reload(self, address: str) -> dict[str, Any]:
        """Have a broker read its configuration and certificates again: changed, needsRestart, failure.

        Raises: RequestNotSupported by other brokers than ours; NoPermission.
        """
        answer = await self._api.requests.ask(address, PocketRequestCode.RELOAD)
        return dict(fastjson.loads(answer.body))

    async def name_server(self, address: str) -> dict[str, str]:
        """Return a name server's settings."""
        answer = await self._api.requests.ask(address, RequestCode.GET_NAMESRV_CONFIG)
        return parse_properties(bytes(answer.body).decode("utf-8"))

    async def update_name_server(self, address: str, **settings: str) -> None:
        body = format_properties(settings).encode("utf-8")
        await self._api.requests.ask(address, RequestCode.UPDATE_NAMESRV_CONFIG, None, body)

    async def set_writable(self, broker_name: str, writable: bool) -> int:
        """Set a broker's write permission at every name server; return the number of topics."""
        code = (
            RequestCode.ADD_WRITE_PERM_OF_BROKER
            if writable
            else RequestCode.WIPE_WRITE_PERM_OF_BROKER
        )
        count = 0
        for address in self._api.requests.name_servers:
            answer = await self._api.requests.ask(
                address,
                code,
                admin_headers.WipeWritePermHeader(broker_name),
                about=f"broker {broker_name!r}",
            )
            count = int(next(iter((answer.ext or {"": "0"}).values())))
        return count

    async def stats(self, address: str, name: str, key: str) -> dict[str, dict[str, float]] | None:
        """Return a counter's windows (VIEW_BROKER_STATS_DATA): statsMinute, statsHour, statsDay, each with
        sum, tps and avgpt; None if the broker has not counted it.
        """
        try:
            answer = await self._api.requests.ask(
                address,
                RequestCode.VIEW_BROKER_STATS_DATA,
                admin_headers.ViewBrokerStatsDataHeader(name, key),
            )
        except BrokerFailed:
            return None
        found: dict[str, dict[str, float]] = fastjson.loads(answer.body)
        return found

    async def counted(self, addresses: Iterable[str], name: str, key: str) -> Counted:
        """Sum up a counter over several brokers; those that do not answer are left out."""
        total = Counted()
        for address in addresses:
            try:
                found = await self.stats(address, name, key)
            except PocketMQError:
                continue
            total.answers += 1
            if found is not None:
                total.known += 1
                total.tps += found["statsMinute"]["tps"]
                # A window that has not run yet is empty; the next smaller one knows.
                windows = ("statsDay", "statsHour", "statsMinute")
                day, hour, minute = (int(found[window]["sum"]) for window in windows)
                total.minute += minute
                total.hour += max(hour, minute)
                total.day = (total.day or 0) + (day or hour or minute)
        return total

    # ------------------------------------------------------------ key-value table

    async def get_kv(self, namespace: str, key: str) -> str | None:
        try:
            answer = await self._api.requests.ask_name_server(
                RequestCode.GET_KV_CONFIG, admin_headers.GetKVConfigHeader(namespace, key)
            )
        except QueryNotFound:
            return None
        return (answer.ext or {}).get("value")

    async def put_kv(
        self, namespace: str, key: str, value: str, *, at: Iterable[str] | None = None
    ) -> None:
        """Set a value at every name server, or at some. Raises: RemotingError; others may have it then."""
        for address in self._api.requests.name_servers if at is None else at:
            await self._api.requests.ask(
                address,
                RequestCode.PUT_KV_CONFIG,
                admin_headers.PutKVConfigHeader(namespace, key, value),
            )

    async def delete_kv(self, namespace: str, key: str, *, at: Iterable[str] | None = None) -> None:
        """Delete a value at every name server, or at some. Raises: RemotingError, as put_kv."""
        for address in self._api.requests.name_servers if at is None else at:
            await self._api.requests.ask(
                address,
                RequestCode.DELETE_KV_CONFIG,
                admin_headers.DeleteKVConfigHeader(namespace, key),
            )

    async def list_kv(self, namespace: str, *, at: str | None = None) -> dict[str, str]:
        """Return a namespace's values: the first name server's that answers, or those of the one `at`."""
        header = admin_headers.GetKVListByNamespaceHeader(namespace)
        code = RequestCode.GET_KVLIST_BY_NAMESPACE
        try:
            if at is None:
                answer = await self._api.requests.ask_name_server(code, header)
            else:
                answer = await self._api.requests.ask(at, code, header)
        except QueryNotFound:
            return {}
        table = fastjson.loads(answer.body).get("table") or {}
        return {str(name): str(value) for name, value in table.items()}
