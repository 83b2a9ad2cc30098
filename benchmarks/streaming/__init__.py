"""What a message costs between actors."""
