# Finds libcudf: that of the Python environment (`pip install libcudf-cu13`). Sets RAPIDSMPF_HAVE_COMPUTE and cudf::cudf.
find_package(cudf 26.10 CONFIG QUIET)
if(cudf_FOUND)
  set(RAPIDSMPF_HAVE_COMPUTE ON)
  message(STATUS "Operators over libcudf: with libcudf ${cudf_VERSION}")
else()
  message(STATUS "Operators over libcudf: not built, no libcudf was found (pip install libcudf-cu13==26.10.*, and build again)")
endif()
