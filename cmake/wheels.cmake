# Finds the CMake packages inside the PyPI wheels (rmm, ucxx, ucx, rapids_logger, libcudf and what it needs). scikit-build-core sets
# CMAKE_PREFIX_PATH by itself; outside pip, look into the interpreter's site-packages.
execute_process(
  COMMAND ${Python_EXECUTABLE} -c
          "import importlib.util as u, os
names = ['librmm', 'rapids_logger', 'libucxx', 'libucx', 'ucxx', 'libcudf', 'libkvikio', 'nvidia.libnvcomp']
def spec(name):
    try:
        return u.find_spec(name)
    except ModuleNotFoundError:
        return None
dirs = [os.path.dirname(s.origin) if s.origin else s.submodule_search_locations[0] for s in map(spec, names) if s]
print(';'.join(dirs))"
  OUTPUT_VARIABLE wheel_prefixes
  OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
list(APPEND CMAKE_PREFIX_PATH ${wheel_prefixes})
