// A folder (-d) in which the head of a job leaves its coordinator's address and token for those that see the folder.
#pragma once

#include <filesystem>
#include <optional>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>
#include <rapidsmpf/bootstrap/detail/socket.hpp>

#include "options.hpp"

namespace rapidsmpf::rrun {

struct Meeting {
    bootstrap::SocketAddress address;
    Token token;
};

// Writes the file, which only its owner can read, and removes it in the end.
class MeetingPlace {
  public:
    // Makes the folder if it is not there. Throws SystemError.
    MeetingPlace(std::filesystem::path folder, Meeting const& meeting, Cleanup cleanup);
    ~MeetingPlace();
    MeetingPlace(MeetingPlace const&) = delete;
    MeetingPlace& operator=(MeetingPlace const&) = delete;

  private:
    std::filesystem::path file_;
    Cleanup cleanup_;
};

// None when nothing whole is there yet.
[[nodiscard]] std::optional<Meeting> read_meeting(std::filesystem::path const& folder);

}  // namespace rapidsmpf::rrun
