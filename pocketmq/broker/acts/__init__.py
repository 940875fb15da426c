"""What a broker does for clients, as plain methods over typed arguments: no frame, no connection.

An act returns its outcome and raises Refused when it declines. The caller is a Peer. The modules of `wire`
parse requests, call acts and write responses; any other front calls the same acts.
"""
