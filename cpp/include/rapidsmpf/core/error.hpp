// The exceptions that Riverrun throws, and the macros that check contracts.
//
// Each type maps one to one to a Python exception (python/rapidsmpf/error.pyx). Standard types keep their
// usual meaning: std::invalid_argument is a ValueError, std::out_of_range an IndexError, std::logic_error
// (misuse of an interface) and everything else a RuntimeError.
#pragma once

#include <cstdint>
#include <exception>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>

namespace rapidsmpf {

// Memory could not be had. The message says which tier, how much was asked and what was free.
class BadAlloc : public std::bad_alloc {
  public:
    explicit BadAlloc(std::string message) : message_{std::move(message)} {}
    [[nodiscard]] char const* what() const noexcept override { return message_.c_str(); }

  private:
    std::string message_;
};

// The memory of a tier is exhausted.
class OutOfMemory : public BadAlloc {
  public:
    using BadAlloc::BadAlloc;
};

// A reservation could not be made, or was asked for more than it holds.
class ReservationError : public BadAlloc {
  public:
    using BadAlloc::BadAlloc;
};

// A wait ended because its time was up. The message names what is missing.
class TimeoutError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The compute device has failed for good: nothing that this process asks of it will succeed. Ends the rank.
class DeviceLostError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// The operating system refused something (a socket, a file); becomes an OSError.
class SystemError : public std::runtime_error {
  public:
    SystemError(std::string const& what, int error_number);
    [[nodiscard]] int error_number() const noexcept { return error_number_; }

  private:
    int error_number_;
};

// Bytes could not be written to the spill space or read back. The message says where, how much and what to try;
// only the operation that needed the bytes fails.
class SpillError : public std::runtime_error {
  public:
    // error_number: what the operating system said, 0 when it said nothing (a limit, a checksum).
    explicit SpillError(std::string const& what, int error_number = 0)
        : std::runtime_error{what}, error_number_{error_number} {}
    [[nodiscard]] int error_number() const noexcept { return error_number_; }

  private:
    int error_number_;
};

// A rank died, left or raised: the collective that waited for it can never finish, and the communicator is
// unusable from then on.
class RankFailedError : public std::runtime_error {
  public:
    // rank: which one failed (-1: the launcher); host, pid: where it ran (empty and 0 when unknown); reason: what is
    // known of why.
    RankFailedError(std::int32_t rank, std::string host, std::int64_t pid, std::string reason);
    [[nodiscard]] std::int32_t rank() const noexcept { return rank_; }
    [[nodiscard]] std::string const& host() const noexcept { return host_; }
    [[nodiscard]] std::int64_t pid() const noexcept { return pid_; }
    [[nodiscard]] std::string const& reason() const noexcept { return reason_; }

  private:
    std::int32_t rank_;
    std::string host_;
    std::int64_t pid_;
    std::string reason_;
};

// Bytes that came off a wire or a disk do not have the form they must have; becomes a ValueError.
class FormatError : public std::invalid_argument {
  public:
    using std::invalid_argument::invalid_argument;
};

// What other ranks are told of an error of this rank: its text, behind the name of the type where the type is one of
// the above ("SpillError: cannot spill 204 KiB ..."). Empty for what is no std::exception.
[[nodiscard]] std::string describe_error(std::exception_ptr const& error);

}  // namespace rapidsmpf

// Throws Exception(message) unless the condition holds; the message is built only then.
#define RAPIDSMPF_EXPECTS(condition, message, Exception) \
    do {                                                 \
        if (!(condition)) {                              \
            throw Exception(message);                    \
        }                                                \
    } while (false)
