"""The name servers' key-value table."""

from typing import Any

from pocketmq.admin.topics import ORDER_NAMESPACE
from pocketmq.console.api.request import ApiRequest
from pocketmq.console.errors import not_found
from pocketmq.console.state import Console


async def show(console: Console, call: ApiRequest) -> dict[str, Any]:
    """Return one namespace; name servers cannot list the namespaces that they have."""
    namespace = call.query.text("namespace", ORDER_NAMESPACE)
    table = await console.admin.settings.list_kv(namespace)
    return {
        "namespace": namespace,
        "known": [ORDER_NAMESPACE],
        "items": [{"key": key, "value": value} for key, value in sorted(table.items())],
    }


async def put(console: Console, call: ApiRequest) -> dict[str, Any]:
    body = call.body
    namespace, key, value = body.text("namespace"), body.text("key"), body.text("value")
    parameters = {"namespace": namespace, "key": key, "value": value}
    old = await console.admin.settings.get_kv(namespace, key)
    if old is not None:
        call.confirm(
            "kv.change",
            {**parameters, "from": old},
            f"{key!r} in namespace {namespace!r} will be {value!r} instead of {old!r} at every name "
            "server.",
        )
    else:
        call.did("kv.create", parameters)
    await console.admin.settings.put_kv(namespace, key, value)
    return {}


async def delete(console: Console, call: ApiRequest) -> dict[str, Any]:
    namespace, key = call.query.text("namespace"), call.query.text("key")
    old = await console.admin.settings.get_kv(namespace, key)
    if old is None:
        raise not_found(f"namespace {namespace!r} has no key {key!r}")
    call.confirm(
        "kv.delete",
        {"namespace": namespace, "key": key, "from": old},
        f"{key!r} with the value {old!r} will be deleted from namespace {namespace!r} at every name "
        "server.",
    )
    await console.admin.settings.delete_kv(namespace, key)
    return {}
