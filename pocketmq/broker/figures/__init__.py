"""Figures: statistics, lags, latencies, and the metrics made of them."""
