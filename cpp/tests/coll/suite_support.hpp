// What the bodies of the collective suite share: checks that throw (so that they work in any program),
// chunks whose contents can be checked, and the names of all bodies.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

namespace rapidsmpf::suite {

// Far longer than any body takes, sanitizers and a loaded machine included: a hang becomes an error.
inline constexpr std::chrono::milliseconds patience{120'000};

class CheckFailed : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

#define SUITE_CHECK(condition)                                                               \
    do {                                                                                     \
        if (!(condition)) {                                                                  \
            throw ::rapidsmpf::suite::CheckFailed{                                           \
                std::string{__FILE__} + ":" + std::to_string(__LINE__) + ": " + #condition}; \
        }                                                                                    \
    } while (false)

// Runs f() and returns the message of the Exception that it must throw.
template <typename Exception, typename Function>
std::string message_of(Function&& f, char const* what) {
    try {
        f();
    } catch (Exception const& error) {
        return error.what();
    }
    throw CheckFailed{std::string{"nothing was thrown by "} + what};
}
#define SUITE_THROWS(Exception, ...) \
    ::rapidsmpf::suite::message_of<Exception>([&] { (void)(__VA_ARGS__); }, #__VA_ARGS__)

// A chunk that says in its metadata who made it and holds `size` bytes that follow from that.
[[nodiscard]] PackedData make_chunk(
    BufferResource& br, std::uint64_t salt, Rank source, std::uint32_t partition, std::uint64_t index,
    std::size_t size, MemoryType type = MemoryType::DEVICE);
struct Label {
    std::uint64_t salt{0};
    Rank source{0};
    std::uint32_t partition{0};
    std::uint64_t index{0};
};
// Checks every byte of a chunk against its label, and returns that.
[[nodiscard]] Label check_chunk(PackedData const& chunk);

// A size in [0, largest], more often small than large, that follows from the arguments.
[[nodiscard]] std::size_t size_of(
    std::uint64_t salt, Rank source, std::uint32_t partition, std::uint64_t index, std::size_t largest);
[[nodiscard]] std::uint64_t mix(std::uint64_t x);

// One test: to be run by every rank of a communicator at once.
struct Body {
    std::string name;
    std::function<void(std::shared_ptr<Communicator>)> run;
};
[[nodiscard]] std::vector<Body> const& bodies();

}  // namespace rapidsmpf::suite
