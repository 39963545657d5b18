"""What watching costs: `python -m tests.bench` measures it and docs/overhead.md shows it."""
