// For backends: how a communicator is made, so that it ends well wherever its last reference goes.
//
// The end of a communicator delivers what is still being sent, for which its progress thread has to run. So when the
// last reference goes on that very thread (as the capture of a function that is done), another thread ends it.
#pragma once

#include <memory>
#include <utility>

#include <rapidsmpf/communicator/communicator.hpp>

namespace rapidsmpf::detail {

// Destroys it, or has it destroyed when this is its progress thread; then its progress thread ends after it.
void end_communicator(Communicator* comm) noexcept;

template <typename Backend, typename... Arguments>
[[nodiscard]] std::shared_ptr<Backend> make_communicator(Arguments&&... arguments) {
    return std::shared_ptr<Backend>{
        std::make_unique<Backend>(std::forward<Arguments>(arguments)...).release(), &end_communicator};
}

}  // namespace rapidsmpf::detail
