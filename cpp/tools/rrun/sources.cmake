# The coordinator's server is shared with the library, but a launcher links none of the library's rooms above topology.
set(bootstrap_sources ${CMAKE_CURRENT_SOURCE_DIR}/../src/bootstrap)
list(
  APPEND
  sources
  ${bootstrap_sources}/node_protocol.cpp
  ${bootstrap_sources}/pmix.cpp
  ${bootstrap_sources}/protocol.cpp
  ${bootstrap_sources}/server.cpp
  ${bootstrap_sources}/server_liveness.cpp
  ${bootstrap_sources}/server_sessions.cpp
  ${bootstrap_sources}/slurm.cpp
  ${bootstrap_sources}/socket.cpp)
