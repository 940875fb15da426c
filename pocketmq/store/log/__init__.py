"""The commit log and its files: append, flush, preallocation, retention."""
