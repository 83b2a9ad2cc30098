// A folder (-d) in which the head of a job leaves its coordinator's address and token for those that see the folder.
#pragma once

#include <filesystem>
#include <optional>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>
#include <rapidsmpf/bootstrap/detail/socket.hpp>
#include <rapidsmpf/core/detail/token.hpp>

#include "options.hpp"

namespace rapidsmpf::rrun {

struct Rendezvous {
    bootstrap::SocketAddress address;
    Token token;
};

// Writes the file, which only its owner can read, and removes it in the end.
class RendezvousFile {
  public:
    // Makes the folder if it is not there. Throws SystemError.
    RendezvousFile(std::filesystem::path folder, Rendezvous const& rendezvous, Cleanup cleanup);
    ~RendezvousFile();
    RendezvousFile(RendezvousFile const&) = delete;
    RendezvousFile& operator=(RendezvousFile const&) = delete;

  private:
    std::filesystem::path file_;
    Cleanup cleanup_;
};

// None when nothing whole is there yet.
[[nodiscard]] std::optional<Rendezvous> read_rendezvous(std::filesystem::path const& folder);

}  // namespace rapidsmpf::rrun
