"""Random networks of actors in C++ and Python, run and compared with what a model says that comes out of them."""
