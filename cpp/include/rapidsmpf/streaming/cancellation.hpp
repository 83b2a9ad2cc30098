// Telling waiters that their result is not needed any more.
//
//     CancellationSource source;
//     run_actor_network(executor, std::move(actors), source);   // elsewhere: source.cancel() ends it
//
// A source and its tokens share one state, which is cancelled once, with the error that those who wait are to throw. An actor
// that fails cancels the source of its network, so that its tokens are cancelled too. Copies are cheap
// and all methods are thread-safe.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <stdexcept>

namespace rapidsmpf::streaming {

// What a cancellation without a reason of its own throws.
class CancelledError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

namespace detail {
class CancellationState;
}

class CancellationToken {
  public:
    // Called at most once, on whatever thread cancels; on this one if that has happened. Must not throw and must not block.
    using Callback = std::function<void(std::exception_ptr)>;

    // Keeps a callback registered as long as it lives. Its end waits for a call that is under way, unless it is that call
    // which ends it. Move-only.
    class Registration {
      public:
        Registration() noexcept = default;
        Registration(Registration&& other) noexcept;
        Registration& operator=(Registration&& other) noexcept;
        Registration(Registration const&) = delete;
        Registration& operator=(Registration const&) = delete;
        ~Registration() { reset(); }
        void reset() noexcept;

      private:
        friend class CancellationToken;
        Registration(std::shared_ptr<detail::CancellationState> state, std::uint64_t id) noexcept;
        std::shared_ptr<detail::CancellationState> state_;
        std::uint64_t id_{0};
    };

    // One that is never cancelled.
    CancellationToken() noexcept = default;

    [[nodiscard]] bool is_cancelled() const noexcept { return reason() != nullptr; }
    // The error; null as long as nothing was cancelled.
    [[nodiscard]] std::exception_ptr reason() const noexcept;
    void throw_if_cancelled() const;
    [[nodiscard]] Registration on_cancel(Callback callback) const;
    // For this repository: the same, but called after those of on_cancel().
    [[nodiscard]] Registration on_cancel_last(Callback callback) const;

  private:
    friend class CancellationSource;
    explicit CancellationToken(std::shared_ptr<detail::CancellationState> state) noexcept;
    [[nodiscard]] Registration add(Callback callback, std::uint64_t order) const;
    std::shared_ptr<detail::CancellationState> state_;
};

class CancellationSource {
  public:
    CancellationSource();

    [[nodiscard]] CancellationToken token() const noexcept { return CancellationToken{state_}; }
    [[nodiscard]] bool is_cancelled() const noexcept { return token().is_cancelled(); }
    // Only the first error counts; whether this was it. Null: a CancelledError.
    bool cancel(std::exception_ptr error = nullptr);

  private:
    std::shared_ptr<detail::CancellationState> state_;
};

}  // namespace rapidsmpf::streaming
