"""An order service on Django in one file: as fastapi_orders.py, its clients live as long as the server.

    pip install . django uvicorn
    uvicorn --app-dir examples django_orders:application

Django answers HTTP only, so `application` takes ASGI's lifespan itself. Under WSGI there is no such moment: a
management command consumes there, `with sync.PushConsumer(...) as consumer: consumer.run_until_signal()`.
"""

import json
import os
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack
from typing import Any

import django
from django.conf import settings
from django.core.asgi import get_asgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

from pocketmq.client import JSON, ConsumeFromWhere, Message, Producer, PushConsumer

os.environ.setdefault("NAMESRV_ADDR", "127.0.0.1:9876")

settings.configure(
    ROOT_URLCONF=__name__, ALLOWED_HOSTS=["127.0.0.1", "localhost"], SECRET_KEY="an example"
)
django.setup()

orders: dict[int, dict[str, Any]] = {}
producer = Producer("order_service")
consumer = PushConsumer("order_shipping", consume_from_where=ConsumeFromWhere.FIRST_OFFSET)


@consumer.on("Orders", "taken", codec=JSON)
async def ship(order: dict[str, Any]) -> None:
    """At least once: doing it twice must do no harm."""
    orders[order["number"]] = {**order, "state": "shipped"}


async def take(request: HttpRequest) -> JsonResponse:
    order = json.loads(request.body)
    key = str(order["number"])
    sent = await producer.send(
        Message("Orders", JSON.encode(order), tags="taken", keys=key), sharding_key=key
    )
    return JsonResponse({"message": sent.msg_id}, status=202)


async def look(request: HttpRequest, number: int) -> JsonResponse:
    if number not in orders:
        return JsonResponse({"detail": "not yet"}, status=404)
    return JsonResponse(orders[number])


urlpatterns = [path("orders", take), path("orders/<int:number>", look)]
http = get_asgi_application()

Event = dict[str, Any]


async def application(
    scope: Event, receive: Callable[[], Awaitable[Event]], send: Callable[[Event], Awaitable[None]]
) -> None:
    if scope["type"] != "lifespan":
        await http(scope, receive, send)
        return
    async with AsyncExitStack() as clients:
        await receive()
        try:
            await clients.enter_async_context(producer)
            await clients.enter_async_context(consumer)
        except Exception as error:
            await send({"type": "lifespan.startup.failed", "message": str(error)})
            raise
        await send({"type": "lifespan.startup.complete"})
        await receive()
    await send({"type": "lifespan.shutdown.complete"})
