"""The files of a store: their layout, and how to find and read them. Writes nothing.

The broker's store, bulk reading and the command line are built on it. It needs pocketmq.remoting only, and
runs without numpy.
"""
