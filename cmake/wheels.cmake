# Finds the CMake packages inside the PyPI wheels (rmm, ucxx, ucx, rapids_logger). scikit-build-core sets
# CMAKE_PREFIX_PATH by itself; outside pip, look into the interpreter's site-packages.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
          "import importlib.util as u, os
names = ['librmm', 'rapids_logger', 'libucxx', 'libucx', 'ucxx']
dirs = [os.path.dirname(s.origin or s.submodule_search_locations[0]) for s in map(u.find_spec, names) if s]
print(';'.join(dirs))"
  OUTPUT_VARIABLE wheel_prefixes
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
list(APPEND CMAKE_PREFIX_PATH ${wheel_prefixes})
