// For backends: how a communicator is made, so that it ends well wherever its last reference goes.
//
// The end of a communicator delivers what is still being sent, for which its progress thread has to run. So when the
// last reference goes on that very thread (as the capture of a function that is done), another thread ends it. In a
// fork it never ends: it is the parent's.
#pragma once

#include <memory>
#include <utility>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/fork.hpp>

namespace rapidsmpf::detail {

// Destroys it, or has it destroyed when this is its progress thread; then its progress thread ends after it.
void end_communicator(Communicator* comm) noexcept;

template <typename Backend, typename... Arguments>
[[nodiscard]] std::shared_ptr<Backend> make_communicator(Arguments&&... arguments) {
    std::shared_ptr<Backend> comm{
        std::make_unique<Backend>(std::forward<Arguments>(arguments)...).release(), &end_communicator};
    keep_in_forks(comm);
    return comm;
}

}  // namespace rapidsmpf::detail
