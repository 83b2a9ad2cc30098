"""What messages hold."""
