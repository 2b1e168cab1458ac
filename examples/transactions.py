"""Take an order from one queue and send two messages to others in one transaction, with radiator.client.

    python examples/transactions.py [--url HOST:PORT]

The acknowledgement of the order and both new messages are one transaction. The first attempt fails halfway:
the transaction is aborted, neither message is delivered, and the order is delivered again.
"""

from __future__ import annotations

import argparse
import secrets

from radiator.client import Connection, Message, connect


class OutOfStock(Exception):
    """The error of the first attempt."""


def handle(connection: Connection, order: Message, prefix: str, in_stock: bool) -> None:
    with connection.transaction() as transaction:
        transaction.send(f"{prefix}.invoices", f"invoice for {order.text}")
        if not in_stock:
            raise OutOfStock(order.text)
        transaction.send(f"{prefix}.parcels", f"parcel with {order.text}")
        transaction.ack(order)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="127.0.0.1:61613")
    options = parser.parse_args()
    prefix = f"/queue/shop-{secrets.token_hex(4)}"

    with connect(options.url) as connection:
        connection.send(f"{prefix}.orders", "3 teapots")
        orders = connection.subscribe(f"{prefix}.orders")
        for in_stock in (False, True):
            order = orders.fetch(timeout=30)
            assert order is not None
            print(f"order: {order.text}, delivery {order.delivery_count}")
            try:
                handle(connection, order, prefix, in_stock)
            except OutOfStock:
                print("out of stock: the transaction is aborted, the order goes back")
                order.nack()
        assert orders.fetch(timeout=0.1) is None
        for name in ("invoices", "parcels"):
            found = [message.text for message in connection.subscribe(
                f"{prefix}.{name}", start_position="first", stop_position="end"
            )]  # fmt: skip
            print(f"{name}: {found}")
            assert len(found) == 1


if __name__ == "__main__":
    main()
