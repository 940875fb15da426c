"""Pop consumption of RocketMQ 5.x's classic clients: the broker hands out messages, keeps them invisible
for a time, and redelivers them unless they are acknowledged.
"""
