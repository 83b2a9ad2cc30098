#include "communicator/ucxx_request.hpp"

#include <stdexcept>

namespace rapidsmpf::detail {

namespace {

std::string describe(bool receives, ucs_status_t status) {
    if (!receives && status == UCS_ERR_MESSAGE_TRUNCATED) {
        return "it did not take a message: it closed its communicator, or expected a smaller one";
    }
    return std::string{receives ? "receiving from it" : "sending to it"}
           + " failed: " + detail::ucx_error_text(status);
}

}  // namespace

UcxRequest::~UcxRequest() {
    if (operation_ && operation_->kind() == UcxOperation::Kind::receive && !operation_->is_complete()) {
        if (auto const transport = transport_.lock()) {
            transport->cancel(*operation_);
        }
    }
}

bool UcxRequest::test() {
    if (!operation_) {
        return true;
    }
    if (!operation_->is_complete()) {
        failure_detector_->raise_if_set();
        return false;
    }
    bool const receives = operation_->kind() == UcxOperation::Kind::receive;
    auto const status = operation_->status();
    if (receives && status == UCS_ERR_MESSAGE_TRUNCATED) {
        throw std::runtime_error{
            "rank " + std::to_string(operation_->peer()) + " sent more than the " + std::to_string(size_)
            + " bytes that were expected"};
    }
    if (status != UCS_OK) {
        failure_detector_->suspect(operation_->peer(), describe(receives, status));
        failure_detector_->raise_if_set();
        return false;
    }
    if (receives && operation_->received_size() != size_) {
        throw std::runtime_error{
            "rank " + std::to_string(operation_->peer()) + " sent "
            + std::to_string(operation_->received_size()) + " bytes where " + std::to_string(size_)
            + " were expected"};
    }
    return true;
}

}  // namespace rapidsmpf::detail
