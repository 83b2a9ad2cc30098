// A small process that outlives rrun by a moment: when rrun is killed, it ends the ranks' process groups.
//
// The kernel ends the ranks themselves with rrun (PR_SET_PDEATHSIG), but not what they started: with
// `rrun bash script.sh` the shell would die and its program live on.
#pragma once

#include <sys/types.h>

#include <rapidsmpf/core/detail/file_descriptor.hpp>

namespace rapidsmpf::rrun {

class Reaper {
  public:
    // Forks it. Throws SystemError.
    Reaper();
    // Lets it go without harm to anyone, and reaps it.
    ~Reaper();
    Reaper(Reaper const&) = delete;
    Reaper& operator=(Reaper const&) = delete;

    // A new process writes its group (a pid_t) here before it runs anything, and its group ends with rrun from then on.
    // If rrun wrote it, it could be killed before that, when the program has started others already.
    [[nodiscard]] int fd() const noexcept { return pipe_.get(); }
    [[nodiscard]] pid_t pid() const noexcept { return pid_; }

  private:
    FileDescriptor pipe_;
    pid_t pid_{-1};
};

}  // namespace rapidsmpf::rrun
