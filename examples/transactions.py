"""Send a message only if a local transaction succeeds: one is committed, one rolled back.

python examples/transactions.py

The message is stored first, invisible to consumers. If this program ends before it reports the outcome, the
broker asks a producer of the group later, which calls `was_paid`.
"""

import asyncio
import os

from pocketmq import Message, MessageExt, TransactionProducer, TransactionState

os.environ.setdefault("NAMESRV_ADDR", "127.0.0.1:9876")

paid: set[str] = set()


def pay(message: Message) -> TransactionState:
    """The local transaction, for example in a database."""
    order = message.body.decode()
    if order == "order without money":
        return TransactionState.ROLLBACK
    paid.add(order)
    return TransactionState.COMMIT


def was_paid(message: MessageExt) -> TransactionState:
    known = message.body.decode() in paid
    return TransactionState.COMMIT if known else TransactionState.ROLLBACK


async def main() -> None:
    async with TransactionProducer("payments", check=was_paid) as producer:
        for order in (b"order 7", b"order without money"):
            result = await producer.send_in_transaction(Message("PaidOrders", order), pay)
            print(order.decode(), "->", result.state.name)


if __name__ == "__main__":
    asyncio.run(main())
