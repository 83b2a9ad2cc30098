# The coordinator's server is shared with the library, but a launcher links none of the library's rooms above core.
list(APPEND sources ${CMAKE_CURRENT_SOURCE_DIR}/../src/bootstrap/protocol.cpp
     ${CMAKE_CURRENT_SOURCE_DIR}/../src/bootstrap/server.cpp
     ${CMAKE_CURRENT_SOURCE_DIR}/../src/bootstrap/socket.cpp)
