// A node's connection to the head of the job. Never blocks.
#pragma once

#include <functional>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>
#include <rapidsmpf/core/detail/file_descriptor.hpp>

namespace rapidsmpf::rrun {

class NodeLink {
  public:
    // A connected socket.
    explicit NodeLink(FileDescriptor socket);

    [[nodiscard]] int fd() const noexcept { return socket_.get(); }
    // What to poll for.
    [[nodiscard]] short events() const noexcept;
    void send(bootstrap::Bytes const& message);
    // Writes and reads what can be; `handle` gets every whole frame. Returns whether the connection is still open.
    // Throws FormatError.
    [[nodiscard]] bool exchange(std::function<void(bootstrap::Frame const&)> const& handle);

  private:
    void flush();

    FileDescriptor socket_;
    bootstrap::FrameBuffer in_;
    bootstrap::Bytes out_;
};

}  // namespace rapidsmpf::rrun
