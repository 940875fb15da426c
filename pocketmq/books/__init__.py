"""The books of a group, computed from the rows of a delivery record and from queues; knows no broker."""
