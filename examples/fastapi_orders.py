"""An order service on FastAPI: takes orders, sends them as messages, and consumes them in its lifespan.

pip install . fastapi uvicorn
uvicorn --app-dir examples fastapi_orders:app

curl -X POST localhost:8000/orders -H 'content-type: application/json' -d '{"number": 1}'
curl localhost:8000/orders/1
"""

import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from fastapi import FastAPI, HTTPException
from pydantic import BaseModel

from pocketmq.client import ConsumeFromWhere, Message, Model, Producer, PushConsumer

os.environ.setdefault("NAMESRV_ADDR", "127.0.0.1:9876")


class Order(BaseModel):
    number: int
    state: str = "taken"


ORDER = Model(Order)
orders: dict[int, Order] = {}
producer = Producer("order_service")
consumer = PushConsumer("order_shipping", consume_from_where=ConsumeFromWhere.FIRST_OFFSET)


@consumer.on("Orders", "taken", codec=ORDER)
async def ship(order: Order) -> None:
    """At least once: doing it twice must do no harm."""
    orders[order.number] = order.model_copy(update={"state": "shipped"})


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[None]:
    """The last to start stops first: what is being consumed may still send."""
    async with producer, consumer:
        yield


app = FastAPI(lifespan=lifespan)


@app.post("/orders", status_code=202)
async def take(order: Order) -> dict[str, str]:
    sent = await producer.send(
        Message("Orders", ORDER.encode(order), tags="taken", keys=str(order.number)),
        sharding_key=str(order.number),
    )
    return {"message": sent.msg_id}


@app.get("/orders/{number}")
async def look(number: int) -> Order:
    if number not in orders:
        raise HTTPException(404, "not yet")
    return orders[number]
