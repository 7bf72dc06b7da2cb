"""The client's side of the wire, without IO."""
