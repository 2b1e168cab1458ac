"""Names and what stands behind them: destinations, the feeds of their partitions, lanes, fan-outs, births."""
