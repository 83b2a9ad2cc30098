# Lays the wheel out: rapidsmpf/{lib64,include,bin} beside the Python modules, CMake package files so that
# C++ programs find it with find_package(rapidsmpf), and rrun on the PATH.
set(wheel_siblings
    "$ORIGIN/../../librmm/lib64;$ORIGIN/../../rapids_logger/lib64;$ORIGIN/../../libucxx/lib64;$ORIGIN/../../libucx/lib")
set_target_properties(rapidsmpf PROPERTIES INSTALL_RPATH "$ORIGIN;${wheel_siblings}")
set(prefix rapidsmpf)
if(RAPIDSMPF_HAVE_MPI)
  # As a rule MPI is in the process already; else it is where it was at build time, or in the environment's lib.
  set_target_properties(
    rapidsmpf_mpi PROPERTIES INSTALL_RPATH "$ORIGIN;${wheel_siblings};${mpi_library_folder};$ORIGIN/../../../..")
endif()
if(RAPIDSMPF_HAVE_COMPUTE)
  set_target_properties(
    rapidsmpf_compute PROPERTIES INSTALL_RPATH "$ORIGIN;${wheel_siblings};$ORIGIN/../../libcudf/lib64")
endif()
# Not lib64, where CMake does not look on Debian.
set(cmake_files ${prefix}/lib/cmake/rapidsmpf)
install(TARGETS rapidsmpf EXPORT rapidsmpf-targets LIBRARY DESTINATION ${prefix}/lib64)
if(RAPIDSMPF_HAVE_MPI)
  install(TARGETS rapidsmpf_mpi EXPORT rapidsmpf-targets LIBRARY DESTINATION ${prefix}/lib64)
endif()
if(RAPIDSMPF_HAVE_COMPUTE)
  install(TARGETS rapidsmpf_compute EXPORT rapidsmpf-targets LIBRARY DESTINATION ${prefix}/lib64)
endif()
# detail/: for this repository only.
install(DIRECTORY include/rapidsmpf DESTINATION ${prefix}/include PATTERN detail EXCLUDE)
set_target_properties(rapidsmpf PROPERTIES EXPORT_NAME rapidsmpf)
install(
  EXPORT rapidsmpf-targets
  NAMESPACE rapidsmpf::
  DESTINATION ${cmake_files})
include(CMakePackageConfigHelpers)
configure_package_config_file(
  cmake/rapidsmpf-config.cmake.in ${CMAKE_CURRENT_BINARY_DIR}/rapidsmpf-config.cmake
  INSTALL_DESTINATION ${cmake_files})
write_basic_package_version_file(
  ${CMAKE_CURRENT_BINARY_DIR}/rapidsmpf-config-version.cmake
  VERSION ${PROJECT_VERSION}
  COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/rapidsmpf-config.cmake
              ${CMAKE_CURRENT_BINARY_DIR}/rapidsmpf-config-version.cmake
        DESTINATION ${cmake_files})
