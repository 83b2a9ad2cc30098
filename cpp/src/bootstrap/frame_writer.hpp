// Builds one frame of the coordinator's protocol: fields are appended, done() puts the size in front.
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include <rapidsmpf/bootstrap/detail/protocol.hpp>
#include <rapidsmpf/core/detail/byte_codec.hpp>
#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::bootstrap {

class FrameWriter {
  public:
    explicit FrameWriter(MessageType type) {
        bytes_.integer(std::uint32_t{0}).integer(static_cast<std::uint8_t>(type));
    }

    template <std::integral T>
    FrameWriter& integer(T value) {
        bytes_.integer(value);
        return *this;
    }
    FrameWriter& raw(std::span<std::uint8_t const> value) {
        bytes_.raw(value);
        return *this;
    }
    FrameWriter& blob(std::span<std::uint8_t const> value) {
        bytes_.blob(value);
        return *this;
    }
    FrameWriter& text(std::string_view value, std::size_t max_size) {
        bytes_.text(value, max_size);
        return *this;
    }
    [[nodiscard]] Bytes done() {
        auto frame = bytes_.take();
        auto const size = frame.size() - sizeof(std::uint32_t);
        RAPIDSMPF_EXPECTS(size <= max_frame_size, "message too large for the coordinator", FormatError);
        for (std::size_t i = 0; i < sizeof(std::uint32_t); ++i) {
            frame[i] = static_cast<std::uint8_t>(size >> (8 * i));
        }
        return frame;
    }

  private:
    ByteWriter bytes_;
};

}  // namespace rapidsmpf::bootstrap
