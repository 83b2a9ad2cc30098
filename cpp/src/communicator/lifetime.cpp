#include <rapidsmpf/communicator/detail/lifetime.hpp>

#include <system_error>
#include <thread>

namespace rapidsmpf::detail {

void end_communicator(Communicator* comm) noexcept {
    std::unique_ptr<Communicator> owned{comm};
    if (!owned->progress_thread()->is_current()) {
        return;
    }
    try {
        // No thread can wait for it: the one that dropped the reference goes on at once. Here the progress thread must not be
        // held, not for a moment longer: it may end as soon as the communicator has.
        std::thread{[owned = std::move(owned)]() mutable {
            auto const progress_thread = owned->progress_thread();
            owned.reset();
        }}.detach();
    } catch (std::system_error const&) {
        // There are no more threads. The communicator is gone, in less good order.
    }
}

}  // namespace rapidsmpf::detail
