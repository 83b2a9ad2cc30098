// How many bytes may be on their way to this rank: shared by all operations of a communicator.
//
// An inbox that is to receive draws a ticket, and tickets are served strictly in the order they were drawn, so
// that a large frame is not starved by small ones. One that is larger than the limit is served alone.
// Used by the progress thread, and by threads that destroy a ticket.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <utility>

#include <rapidsmpf/core/mutex.hpp>

namespace rapidsmpf::exchange {

class ReceiveBudget {
  public:
    // A place in the queue and, once granted, bytes of the budget; both are given up by the destructor. The
    // budget must outlive it.
    class Ticket {
      public:
        Ticket(Ticket&& other) noexcept
            : budget_{std::exchange(other.budget_, nullptr)},
              number_{other.number_},
              bytes_{other.bytes_},
              granted_{other.granted_} {}
        Ticket& operator=(Ticket&& other) noexcept;
        Ticket(Ticket const&) = delete;
        Ticket& operator=(Ticket const&) = delete;
        ~Ticket() { drop(); }

        // Whether the bytes may be received now; true from then on. `limit` bounds what is on its way.
        [[nodiscard]] bool try_grant(std::size_t limit);

      private:
        friend class ReceiveBudget;
        Ticket(ReceiveBudget& budget, std::uint64_t number, std::size_t bytes) noexcept
            : budget_{&budget}, number_{number}, bytes_{bytes} {}
        void drop() noexcept;

        ReceiveBudget* budget_;
        std::uint64_t number_;
        std::size_t bytes_;
        bool granted_{false};
    };

    [[nodiscard]] Ticket draw(std::size_t bytes);
    // Bytes granted and not given up, and the most there have been.
    [[nodiscard]] std::size_t in_flight() const;
    [[nodiscard]] std::size_t peak() const;
    // Tickets that have not been granted.
    [[nodiscard]] std::size_t waiting() const;

  private:
    mutable Mutex mutex_;
    std::set<std::uint64_t> waiting_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::uint64_t next_number_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::size_t in_flight_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::size_t peak_ RAPIDSMPF_GUARDED_BY(mutex_){0};
};

}  // namespace rapidsmpf::exchange
