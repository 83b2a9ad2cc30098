// The requests that UcxxCommunicator hands out.
#pragma once

#include <cstddef>
#include <memory>
#include <utility>

#include <rapidsmpf/communicator/communicator.hpp>
#include <rapidsmpf/communicator/detail/failure_detector.hpp>

#include "communicator/ucxx_transport.hpp"

namespace rapidsmpf::detail {

// A send or receive, as the user of a communicator holds it.
class UcxRequest final : public Communicator::Request {
  public:
    // `operation` is null for a send that goes nowhere, because its receiver has left.
    UcxRequest(
        std::shared_ptr<UcxTransport> const& transport, std::shared_ptr<FailureDetector> failure_detector,
        UcxOperationPtr operation, std::size_t size)
        : transport_{transport},
          failure_detector_{std::move(failure_detector)},
          operation_{std::move(operation)},
          size_{size} {}
    // Cancels a receive that is not complete.
    ~UcxRequest() override;
    UcxRequest(UcxRequest const&) = delete;
    UcxRequest& operator=(UcxRequest const&) = delete;

    // Throws RankFailedError when the communicator failed before it was complete, and std::runtime_error when the
    // message has another size.
    [[nodiscard]] bool test() override;

  private:
    std::weak_ptr<UcxTransport> transport_;
    std::shared_ptr<FailureDetector> failure_detector_;
    UcxOperationPtr operation_;
    std::size_t size_;
};

}  // namespace rapidsmpf::detail
