"""RapidsMPF in the workers and with the tables of other libraries."""
