"""Pulls: their pace, their answers, and the messages that they bring."""
