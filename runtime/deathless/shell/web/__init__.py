"""HTTP/1.1 and HTTP/2 for every port of ours that speaks them, JSON of strangers, and metrics."""
