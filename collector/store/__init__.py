"""Where the collector keeps records. `base` is the seam; `embedded` is ClickHouse inside."""
