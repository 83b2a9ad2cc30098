// What travels through channels: a payload of any movable type, its place in the order of creation, and a
// description of what it takes. A Message owns its payload; it is movable, not copyable.
//
// A payload type takes part in spilling by specialising PayloadTraits: describe() says how many bytes it holds in
// which tier, spill() moves them to a lower one. PackedData does; other types are left alone.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <rapidsmpf/memory/memory_type.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

namespace rapidsmpf::streaming {

enum class Spillable : bool { no = false, yes = true };

// How many bytes a message holds in each tier, and whether they can be moved to a lower one.
class ContentDescription {
  public:
    ContentDescription() noexcept = default;
    ContentDescription(MemoryType type, std::size_t bytes, Spillable spillable) noexcept
        : spillable_{spillable} {
        bytes_[static_cast<std::size_t>(type)] = bytes;
    }
    [[nodiscard]] std::size_t bytes(MemoryType type) const noexcept {
        return bytes_[static_cast<std::size_t>(type)];
    }
    void set_bytes(MemoryType type, std::size_t bytes) noexcept {
        bytes_[static_cast<std::size_t>(type)] = bytes;
    }
    [[nodiscard]] std::size_t total_bytes() const noexcept {
        return std::accumulate(bytes_.begin(), bytes_.end(), std::size_t{0});
    }
    [[nodiscard]] bool spillable() const noexcept { return spillable_ == Spillable::yes; }

  private:
    std::array<std::size_t, memory_types.size()> bytes_{};
    Spillable spillable_{Spillable::no};
};

// The default: a payload of unknown size that stays where it is.
template <typename T>
struct PayloadTraits {
    [[nodiscard]] static ContentDescription describe(T const& /*payload*/) noexcept { return {}; }
    static std::size_t spill(T& /*payload*/) { return 0; }
};

template <>
struct PayloadTraits<PackedData> {
    [[nodiscard]] static ContentDescription describe(PackedData const& payload) noexcept;
    // Moves the buffer from DEVICE to the best lower tier with room; returns the bytes freed.
    static std::size_t spill(PackedData& payload);
};

// Holds something foreign (a Python object) and calls `release` on it in the end.
class ForeignPayload {
  public:
    using Release = void (*)(void*);
    ForeignPayload(void* object, Release release) noexcept : object_{object, release} {}
    [[nodiscard]] void* get() const noexcept { return object_.get(); }
    // Hands the object and the duty to release it to the caller.
    [[nodiscard]] void* take() noexcept { return object_.release(); }

  private:
    std::unique_ptr<void, Release> object_;
};

class Message {
  public:
    // An empty message.
    Message() noexcept = default;
    template <typename T>
        requires(!std::is_reference_v<T> && !std::is_const_v<T>)
    Message(std::uint64_t sequence, T&& payload)
        : description_{PayloadTraits<T>::describe(payload)},
          payload_{std::make_unique<Holder<T>>(std::move(payload))},
          sequence_{sequence} {}
    // With an explicit description, for payloads whose type says nothing about their size.
    template <typename T>
        requires(!std::is_reference_v<T> && !std::is_const_v<T>)
    Message(std::uint64_t sequence, T&& payload, ContentDescription description)
        : description_{description},
          payload_{std::make_unique<Holder<T>>(std::move(payload))},
          sequence_{sequence} {}
    Message(Message&&) noexcept = default;
    Message& operator=(Message&&) noexcept = default;
    Message(Message const&) = delete;
    Message& operator=(Message const&) = delete;
    ~Message() = default;

    [[nodiscard]] bool empty() const noexcept { return payload_ == nullptr; }
    // Where the payload stands in the order of creation; messages may arrive in another order.
    [[nodiscard]] std::uint64_t sequence() const noexcept { return sequence_; }
    [[nodiscard]] ContentDescription const& description() const noexcept { return description_; }

    template <typename T>
    [[nodiscard]] bool holds() const noexcept {
        return payload_ != nullptr && payload_->type() == typeid(T);
    }
    // The payload. Throws std::invalid_argument when the message is empty or holds another type.
    template <typename T>
    [[nodiscard]] T const& get() const {
        check(typeid(T));
        return static_cast<Holder<T> const&>(*payload_).value;
    }
    // Takes the payload out and leaves the message empty. Throws like get().
    template <typename T>
    [[nodiscard]] T release() {
        check(typeid(T));
        T value = std::move(static_cast<Holder<T>&>(*payload_).value);
        payload_.reset();
        description_ = {};
        return value;
    }

    // Moves the payload to a lower tier if its type can; returns the bytes freed and updates the description.
    std::size_t spill();

  private:
    struct Payload {
        Payload() = default;
        Payload(Payload const&) = delete;
        Payload& operator=(Payload const&) = delete;
        virtual ~Payload() = default;
        [[nodiscard]] virtual std::type_info const& type() const noexcept = 0;
        virtual std::size_t spill(ContentDescription& description) = 0;
    };
    template <typename T>
    struct Holder final : Payload {
        explicit Holder(T&& value_) : value{std::move(value_)} {}
        [[nodiscard]] std::type_info const& type() const noexcept override { return typeid(T); }
        std::size_t spill(ContentDescription& description) override {
            auto const freed = PayloadTraits<T>::spill(value);
            if (freed > 0) {
                description = PayloadTraits<T>::describe(value);
            }
            return freed;
        }
        T value;
    };

    void check(std::type_info const& wanted) const;

    ContentDescription description_;
    std::unique_ptr<Payload> payload_;
    std::uint64_t sequence_{0};
};

}  // namespace rapidsmpf::streaming
