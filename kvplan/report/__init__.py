"""Results as plain rows, JSON or HTML, without a terminal."""
