"""`pocketmq migrate`: another broker takes over from a broker while clients keep running."""
