#include <rapidsmpf/core/error.hpp>

#include <cstring>

namespace rapidsmpf {

SystemError::SystemError(std::string const& what, int error_number)
    : std::runtime_error{what + ": " + std::strerror(error_number)}, error_number_{error_number} {}

namespace {
std::string describe_failure(
    std::int32_t rank, std::string const& host, std::int64_t pid, std::string const& reason) {
    // No rank: the coordinator itself is gone.
    std::string text = rank < 0 ? "the launcher" : "rank " + std::to_string(rank);
    if (pid != 0) {
        text += " (pid " + std::to_string(pid) + (host.empty() ? ")" : " on " + host + ")");
    }
    return text + " failed: " + reason;
}
}  // namespace

RankFailedError::RankFailedError(std::int32_t rank, std::string host, std::int64_t pid, std::string reason)
    : std::runtime_error{describe_failure(rank, host, pid, reason)},
      rank_{rank},
      host_{std::move(host)},
      pid_{pid},
      reason_{std::move(reason)} {}

std::string describe_error(std::exception_ptr const& error) {
    auto const named = [](char const* name, std::exception const& cause) {
        return std::string{name} + ": " + cause.what();
    };
    try {
        std::rethrow_exception(error);
    } catch (RankFailedError const& cause) {
        return named("RankFailedError", cause);
    } catch (ReservationError const& cause) {
        return named("ReservationError", cause);
    } catch (OutOfMemory const& cause) {
        return named("OutOfMemory", cause);
    } catch (BadAlloc const& cause) {
        return named("BadAlloc", cause);
    } catch (FormatError const& cause) {
        return named("FormatError", cause);
    } catch (SpillError const& cause) {
        return named("SpillError", cause);
    } catch (TimeoutError const& cause) {
        return named("TimeoutError", cause);
    } catch (DeviceLostError const& cause) {
        return named("DeviceLostError", cause);
    } catch (SystemError const& cause) {
        return named("SystemError", cause);
    } catch (std::exception const& cause) {
        return cause.what();
    } catch (...) {
        return {};
    }
}

}  // namespace rapidsmpf
