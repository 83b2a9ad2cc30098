#include <rapidsmpf/core/detail/callback_gate.hpp>

namespace rapidsmpf {

CallbackGate& CallbackGate::instance() noexcept {
    static CallbackGate gate;
    return gate;
}

bool CallbackGate::enter() noexcept {
    ++inside_;
    if (closed_.load()) {
        leave();
        return false;
    }
    return true;
}

void CallbackGate::leave() noexcept {
    if (--inside_ == 0) {
        inside_.notify_all();
    }
}

void CallbackGate::close() noexcept {
    closed_ = true;
    for (auto inside = inside_.load(); inside != 0; inside = inside_.load()) {
        inside_.wait(inside);
    }
}

}  // namespace rapidsmpf
