"""HTTP/1.1 for every port of ours that speaks it, JSON of strangers, and metrics."""
