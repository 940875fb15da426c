"""The front for RocketMQ 5's own SDKs: their gRPC service, in the broker's process.

    server       the port: plain text and TLS on one
    http2 hpack huffman    HTTP/2, bytes in and bytes out
    calls        gRPC on top of it: messages, deadlines, status
    schema messages        the messages of apache.rocketmq.v2, as a table

It calls the broker's acts and represents its clients as peers; the broker does not know about it.
"""
