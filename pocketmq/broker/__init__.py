"""The broker: composition, managers and one processor module per subject.

`async with Broker(BrokerConfig(...), StoreConfig(...)) as broker:` serves until the block is left.
"""
