// Messages that come unasked: taken from UCX as they arrive, handed out whole, per tag and sender in order.
//
// A large message is still on its way when UCX shows it: its receive is posted, and it waits here, and with it
// what the same sender sent after it. Nothing here waits for it.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/core/mutex.hpp>

#include "communicator/ucxx_transport.hpp"

namespace rapidsmpf::detail {

// A message that had begun to arrive could not be received.
class UcxReceiveError : public std::runtime_error {
  public:
    UcxReceiveError(Rank source, ucs_status_t status)
        : std::runtime_error{"a message could not be received from it: " + ucx_error_text(status)},
          source_{source} {}
    [[nodiscard]] Rank source() const noexcept { return source_; }

  private:
    Rank source_;
};

class UcxInbox {
  public:
    explicit UcxInbox(UcxTransport& transport) : transport_{transport} {}

    // The next message whose UCX tag agrees with `tag` in the bits above the sender's. Throws
    // UcxReceiveError.
    [[nodiscard]] std::optional<Communicator::Arrived> take(std::uint64_t tag);

  private:
    struct Coming {
        Coming(Rank source_, std::shared_ptr<std::vector<std::uint8_t>> bytes_, UcxOperationPtr operation_)
            : source{source_}, bytes{std::move(bytes_)}, operation{std::move(operation_)} {}
        Rank source;
        std::shared_ptr<std::vector<std::uint8_t>> bytes;  // shared with the operation
        UcxOperationPtr operation;
    };

    UcxTransport& transport_;
    Mutex mutex_;
    // By tag, in order of arrival.
    std::map<std::uint64_t, std::deque<Coming>> coming_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf::detail
