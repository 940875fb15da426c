"""`pocketmq migrate`: another broker takes a broker's place while clients go on."""
