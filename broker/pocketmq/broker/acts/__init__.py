"""What a broker does for clients, as plain methods over typed arguments: no frame, no connection.

An act says what it did by its result, and what it did not do by raising Refused. Who asks is a Peer. The
modules of `wire` parse requests, call acts and answer; another front calls the same acts.
"""
