"""The files of a store as anybody sees them: their layout, and how they are found and read. Writes nothing.

The broker's store, bulk reading and the command line stand on it. It needs pocketmq.remoting only, and runs
where no numpy is.
"""
