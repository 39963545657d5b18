"""Loading the programs in probes/ into the kernel and taking their events."""
