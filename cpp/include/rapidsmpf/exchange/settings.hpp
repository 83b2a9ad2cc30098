// The tunable sizes of the exchange protocol. Ranks may differ in them: whatever the two ends must agree on
// travels in the messages. Tests use tiny values to reach every path with small data.
#pragma once

#include <chrono>
#include <cstddef>

#include <rapidsmpf/core/config.hpp>
#include <rapidsmpf/device/device.hpp>

namespace rapidsmpf::exchange {

struct Settings {
    Settings() {}  // user-written: travels through coroutines, not an aggregate
    // Those below, but on a GPU frames and bundles of 64 MiB, 1 GiB announced and a sixteenth of its memory (2 GiB at least) on its way:
    // what its link moves in a millisecond is what a CPU moves in a hundred.
    [[nodiscard]] static Settings for_device(Device const& device);

    // Pieces with at most this many bytes of data are gathered into one payload per frame, or travel inside
    // the message that lists them; larger ones are sent straight from their own buffers.
    std::size_t gather_limit{std::size_t{16} << 10U};
    // A frame is closed once its metadata and data reach this size; a larger piece is a frame of its own.
    std::size_t frame_bytes{std::size_t{4} << 20U};
    // What a sender may have under way to one peer without having been asked for: pieces inside messages.
    std::size_t eager_bytes{std::size_t{64} << 10U};
    // What a sender may have announced to one peer and not been granted yet; one frame is always allowed. It
    // bounds the metadata that a receiver holds for frames it has no memory for.
    std::size_t announce_bytes{std::size_t{32} << 20U};
    // Payloads longer than this travel as several messages.
    std::size_t split_bytes{std::size_t{1} << 30U};
    // Bytes granted and not arrived yet, over all operations of the communicator (one frame is always allowed).
    std::size_t receive_limit{std::size_t{128} << 20U};

    // A bundle (bundle.hpp) has at most this many bytes of chunks, and no more than a frame.
    std::size_t bundle_bytes{std::size_t{1} << 20U};

    // Where an operation may wait for more (Operation::Coalescing): a peer hears of what is for it when there are this many
    // bytes, or this time after it heard the last time.
    std::size_t flush_bytes{std::size_t{4} << 20U};
    std::chrono::microseconds flush_delay{4000};

    // Throws std::invalid_argument when a size is zero that must not be.
    void validate() const;
    // The options exchange_<member>. Where one is not given it is what for_device() says.
    [[nodiscard]] static Settings from_options(
        config::Options options, Device const& device = Device::current());
};

}  // namespace rapidsmpf::exchange
