// A job: the ranks' processes, their coordinator, their output, and how they end.
#pragma once

#include "options.hpp"

namespace rapidsmpf::rrun {

// Runs the job to its end and returns rrun's exit code. One thread, driven by poll(). Everything that it starts has
// ended when it returns or throws. Throws ExecError when the program cannot be executed.
[[nodiscard]] int run_job(CommandLine const& command_line);

}  // namespace rapidsmpf::rrun
