"""Tables of libcudf."""
