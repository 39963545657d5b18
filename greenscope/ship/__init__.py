"""Where records go: sinks. Writing to one never blocks on a network."""
