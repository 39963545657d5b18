"""Reports: the one path from records to figures, text and JSON. docs/reports.md."""
