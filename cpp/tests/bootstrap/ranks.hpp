// For test programs that run as ranks under rrun: waiting for messages without spinning.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <future>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/progress_thread.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>

namespace rapidsmpf::test {

// Calls `look` on the progress thread, round after round, until it returns true; rethrows what it throws.
template <typename Look>
void wait_on_progress(Communicator& comm, Look look) {
    // Shared: the waiting thread may be on its way while the other is still inside set_value().
    auto const done = std::make_shared<std::promise<void>>();
    comm.progress_thread()->add_function([&look, done] {
        try {
            if (!look()) {
                return ProgressThread::TickResult::idle();
            }
            done->set_value();
        } catch (...) {
            done->set_exception(std::current_exception());
        }
        return ProgressThread::TickResult::done();
    });
    done->get_future().get();
}

inline void wait(Communicator& comm, Communicator::Request& request) {
    wait_on_progress(comm, [&] { return request.test(); });
}

inline void wait_all(
    Communicator& comm, std::vector<std::unique_ptr<Communicator::Request>> const& requests) {
    for (auto const& request : requests) {
        wait(comm, *request);
    }
}

inline Communicator::Arrived wait_any(Communicator& comm, Tag tag) {
    std::optional<Communicator::Arrived> arrived;
    wait_on_progress(comm, [&] {
        comm.check();
        arrived = comm.recv_any(tag);
        return arrived.has_value();
    });
    return std::move(*arrived);
}

// Bytes that only this sender, receiver and number make. They repeat, but with a period that is prime, so that no
// two blocks or pages of a message are equal.
class Pattern {
  public:
    Pattern(Rank from, Rank to, std::uint64_t number) : period_(65521) {
        auto bits = number * 0xbf58'476d'1ce4'e5b9U + static_cast<std::uint64_t>(from) * 131
                    + static_cast<std::uint64_t>(to) * 257 + 1;
        for (auto& byte : period_) {
            bits = bits * 0x5851'f42d'4c95'7f2dU + 0x1405'7b7e'f767'814fU;
            byte = static_cast<std::uint8_t>(bits >> 56);
        }
    }
    void fill(void* bytes, std::size_t size) const {
        for (std::size_t at = 0; at < size; at += period_.size()) {
            std::memcpy(
                static_cast<std::uint8_t*>(bytes) + at, period_.data(), std::min(period_.size(), size - at));
        }
    }
    [[nodiscard]] bool is_in(void const* bytes, std::size_t size) const {
        for (std::size_t at = 0; at < size; at += period_.size()) {
            auto const* const here = static_cast<std::uint8_t const*>(bytes) + at;
            if (std::memcmp(here, period_.data(), std::min(period_.size(), size - at)) != 0) {
                return false;
            }
        }
        return true;
    }
    [[nodiscard]] std::uint8_t at(std::size_t position) const { return period_[position % period_.size()]; }

  private:
    std::vector<std::uint8_t> period_;
};

// Buffers and messages with these bytes.
inline std::shared_ptr<Buffer> patterned(
    std::shared_ptr<BufferResource> const& br, std::size_t size, Rank from, Rank to, std::uint64_t number) {
    std::shared_ptr<Buffer> buffer = br->allocate(MemoryType::HOST, size);
    Pattern{from, to, number}.fill(buffer->mutable_host_bytes().data(), size);
    return buffer;
}

inline bool has_pattern(std::span<std::byte const> bytes, Rank from, Rank to, std::uint64_t number) {
    return Pattern{from, to, number}.is_in(bytes.data(), bytes.size());
}

// Sends messages of all these sizes from each rank to each other, all at once. Returns what did not come as it was sent;
// empty: everything did.
inline std::string exchange_sizes(Communicator& comm, std::vector<std::size_t> const& sizes) {
    auto const br = BufferResource::make();
    auto const me = comm.rank();
    struct Expected {
        std::shared_ptr<Buffer> bytes;
        Rank from;
        std::size_t number;
    };
    std::vector<std::unique_ptr<Communicator::Request>> requests;
    std::vector<Expected> expected;
    for (std::size_t n = 0; n < sizes.size(); ++n) {
        Tag const tag{static_cast<OpId>(n), 0};
        for (Rank peer = 0; peer < comm.nranks(); ++peer) {
            if (peer != me) {
                expected.push_back({br->allocate(MemoryType::HOST, sizes[n]), peer, n});
                requests.push_back(comm.recv(expected.back().bytes, 0, sizes[n], peer, tag));
                requests.push_back(comm.send(patterned(br, sizes[n], me, peer, n), 0, sizes[n], peer, tag));
            }
        }
    }
    wait_all(comm, requests);
    std::string wrong;
    for (auto const& [bytes, from, number] : expected) {
        if (!has_pattern(bytes->host_bytes(), from, me, number)) {
            wrong += std::to_string(sizes[number]) + " bytes from rank " + std::to_string(from) + "; ";
        }
    }
    return wrong;
}

inline std::vector<std::uint8_t> small_message(Rank from, Rank to, std::uint64_t number, std::size_t size) {
    std::vector<std::uint8_t> bytes(size);
    Pattern{from, to, number}.fill(bytes.data(), size);
    return bytes;
}

}  // namespace rapidsmpf::test
