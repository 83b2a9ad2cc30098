"""How soon the client of a cluster is told that a rank has died."""
