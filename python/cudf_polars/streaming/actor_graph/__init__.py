"""Collective operations of running queries."""
