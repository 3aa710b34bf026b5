"""Move bytes: select objects, read and send them, commit files, record progress and retry failures."""
