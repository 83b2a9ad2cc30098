// What travels through channels: a payload of any movable type, its place in the order of creation, and a
// description of what it takes. A Message owns its payload; it is movable, not copyable.
//
// A payload type takes part in spilling by specialising PayloadTraits: describe() says how many bytes it holds in
// which tier, spill() moves them to a lower one. PackedData does; other types are left alone. Copies are made by the traits,
// too: deep ones, within a reservation, of what owns memory of a BufferResource; other types are copied as C++ copies them.
#pragma once

#include <array>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include <rapidsmpf/memory/buffer.hpp>
#include <rapidsmpf/memory/memory_reservation.hpp>
#include <rapidsmpf/memory/memory_type.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

namespace rapidsmpf {
class BufferResource;
class Table;
}  // namespace rapidsmpf

namespace rapidsmpf::streaming {

class ParkedMessage;

enum class Spillable : bool { no = false, yes = true };

// How many bytes a message holds in each tier, whether they can be moved to a lower one, and how many rows they are.
class ContentDescription {
  public:
    ContentDescription() noexcept = default;
    ContentDescription(
        MemoryType type, std::size_t bytes, Spillable spillable, std::uint64_t rows = 0) noexcept
        : rows_{rows & most_rows}, spillable_{spillable == Spillable::yes} {
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
    [[nodiscard]] bool spillable() const noexcept { return spillable_; }
    // Rows of a table, packed or not; zero for other payloads.
    [[nodiscard]] std::uint64_t rows() const noexcept { return rows_; }

  private:
    static constexpr auto most_rows = ~std::uint64_t{0} >> 1;

    std::array<std::size_t, memory_types.size()> bytes_{};
    std::uint64_t rows_ : 63 {0};
    bool spillable_ : 1 {false};  // in the same word: every message moves through a channel several times
};

// How the payload of a message that waits becomes bytes that may be moved to lower tiers, as a PackedData.
enum class Packing : std::uint8_t {
    never,   // not at all
    moves,   // its bytes are a Buffer's, and none is copied
    copies,  // the bytes have to be gathered first; only done when memory is short
};

// The default: a payload of unknown size that stays where it is. Types that are to be copied within a reservation have
// `static std::size_t copy_cost(T const&)` and `static T copy(T const&, MemoryReservation&)`. Those that may be moved to lower
// tiers while they wait have `static Packing packing(T const&)`, `static PackedData pack(T&&)` (if nothing is copied) or
// `static PackedData packed_copy(T const&, BufferResource&)`, and `static T unpack(PackedData&&)`.
template <typename T>
struct PayloadTraits {
    [[nodiscard]] static ContentDescription describe(T const& /*payload*/) noexcept { return {}; }
    static std::size_t spill(T& /*payload*/) { return 0; }
};

// In table_batch.hpp, without which a message of a table does not compile: it would have no rows and no bytes.
template <>
struct PayloadTraits<Table>;

template <>
struct PayloadTraits<PackedData> {
    [[nodiscard]] static ContentDescription describe(PackedData const& payload) noexcept;
    // Moves the buffer to the best lower tier with room; returns the bytes freed.
    static std::size_t spill(PackedData& payload);
    [[nodiscard]] static std::size_t copy_cost(PackedData const& payload) noexcept;
    // The copy is in the reservation's tier.
    [[nodiscard]] static PackedData copy(PackedData const& payload, MemoryReservation& reservation);
    [[nodiscard]] static Packing packing(PackedData const& /*payload*/) noexcept { return Packing::moves; }
    [[nodiscard]] static PackedData pack(PackedData&& payload) noexcept { return std::move(payload); }
    [[nodiscard]] static PackedData unpack(PackedData&& packed) noexcept { return std::move(packed); }
};

template <>
struct PayloadTraits<std::unique_ptr<Buffer>> {
    [[nodiscard]] static ContentDescription describe(std::unique_ptr<Buffer> const& payload) noexcept;
    static std::size_t spill(std::unique_ptr<Buffer>& payload);
    [[nodiscard]] static std::size_t copy_cost(std::unique_ptr<Buffer> const& payload) noexcept;
    [[nodiscard]] static std::unique_ptr<Buffer> copy(
        std::unique_ptr<Buffer> const& payload, MemoryReservation& reservation);
    [[nodiscard]] static Packing packing(std::unique_ptr<Buffer> const& payload) noexcept;
    [[nodiscard]] static PackedData pack(std::unique_ptr<Buffer>&& payload);
    [[nodiscard]] static std::unique_ptr<Buffer> unpack(PackedData&& packed) noexcept {
        return std::move(packed.data);
    }
};

// Whether the traits of a type say how to pack it.
template <typename T>
concept PackedByTraits = requires(T const& payload, PackedData&& packed) {
    { PayloadTraits<T>::packing(payload) } -> std::same_as<Packing>;
    { PayloadTraits<T>::unpack(std::move(packed)) } -> std::same_as<T>;
};
template <typename T>
concept PackedByMoving = PackedByTraits<T> && requires(T&& payload) {
    { PayloadTraits<T>::pack(std::move(payload)) } -> std::same_as<PackedData>;
};
template <typename T>
concept PackedByCopying = PackedByTraits<T> && requires(T const& payload, BufferResource& resource) {
    { PayloadTraits<T>::packed_copy(payload, resource) } -> std::same_as<PackedData>;
};

// Whether the traits of a type say how to copy it.
template <typename T>
concept CopiedByTraits = requires(T const& payload, MemoryReservation& reservation) {
    { PayloadTraits<T>::copy_cost(payload) } -> std::convertible_to<std::size_t>;
    { PayloadTraits<T>::copy(payload, reservation) } -> std::same_as<T>;
};

// Holds something foreign (a Python object) and calls `release` on it in the end. A copy shares the object: `retain` is
// called for it; without `retain` there are no copies.
class ForeignPayload {
  public:
    using Release = void (*)(void*);
    using Retain = void (*)(void*);
    ForeignPayload(void* object, Release release, Retain retain = nullptr) noexcept
        : object_{object, release}, retain_{retain} {}
    [[nodiscard]] void* get() const noexcept { return object_.get(); }
    [[nodiscard]] bool is_copyable() const noexcept { return retain_ != nullptr; }
    // Throws std::invalid_argument when there is no `retain`.
    [[nodiscard]] ForeignPayload copy() const;
    // Hands the object and the duty to release it to the caller.
    [[nodiscard]] void* take() noexcept { return object_.release(); }

  private:
    std::unique_ptr<void, Release> object_;
    Retain retain_;
};

template <>
struct PayloadTraits<ForeignPayload> {
    [[nodiscard]] static ContentDescription describe(ForeignPayload const& /*payload*/) noexcept {
        return {};
    }
    static std::size_t spill(ForeignPayload& /*payload*/) { return 0; }
    [[nodiscard]] static std::size_t copy_cost(ForeignPayload const& /*payload*/) noexcept { return 0; }
    [[nodiscard]] static ForeignPayload copy(
        ForeignPayload const& payload, MemoryReservation& /*reservation*/) {
        return payload.copy();
    }
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
        return *static_cast<Holder<T> const&>(*payload_).value;
    }
    // Takes the payload out and leaves the message empty. Throws like get().
    template <typename T>
    [[nodiscard]] T release() {
        check(typeid(T));
        T value = std::move(*static_cast<Holder<T>&>(*payload_).value);
        payload_.reset();
        description_ = {};
        return value;
    }

    // Moves the payload to a lower tier if its type can; returns the bytes freed and updates the description.
    std::size_t spill();

    // Bytes that a reservation for copy() must have; zero when the type is copied without one. Throws
    // std::invalid_argument when the message is empty or its type cannot be copied.
    [[nodiscard]] std::size_t copy_cost() const;
    // The same payload again, with the same sequence number; its memory is in the reservation's tier. Throws as above, and
    // ReservationError when the reservation is too small.
    [[nodiscard]] Message copy(MemoryReservation& reservation) const;

  private:
    struct Payload {
        Payload() = default;
        Payload(Payload const&) = delete;
        Payload& operator=(Payload const&) = delete;
        virtual ~Payload() = default;
        [[nodiscard]] virtual std::type_info const& type() const noexcept = 0;
        virtual std::size_t spill(ContentDescription& description) = 0;
        [[nodiscard]] virtual std::size_t copy_cost() const = 0;
        // Describes the copy, too, if the type's traits made it.
        [[nodiscard]] virtual std::unique_ptr<Payload> copy(
            MemoryReservation& reservation, ContentDescription& description) const = 0;
        [[nodiscard]] virtual Packing packing() const noexcept = 0;
        // They leave no value behind, until unpack() makes one.
        [[nodiscard]] virtual PackedData pack() = 0;
        virtual void drop_value() noexcept = 0;
        [[nodiscard]] virtual PackedData packed_copy(BufferResource& resource) const = 0;
        virtual void unpack(PackedData&& packed, ContentDescription& description) = 0;
    };
    [[noreturn]] static void throw_not_copyable(std::type_info const& type);
    [[noreturn]] static void throw_not_packed(std::type_info const& type);
    template <typename T>
    struct Holder final : Payload {
        explicit Holder(T&& value_) : value{std::move(value_)} {}
        [[nodiscard]] std::type_info const& type() const noexcept override { return typeid(T); }
        std::size_t spill(ContentDescription& description) override {
            auto const freed = PayloadTraits<T>::spill(*value);
            if (freed > 0) {
                description = PayloadTraits<T>::describe(*value);
            }
            return freed;
        }
        [[nodiscard]] std::size_t copy_cost() const override {
            if constexpr (CopiedByTraits<T>) {
                return PayloadTraits<T>::copy_cost(*value);
            } else if constexpr (std::is_copy_constructible_v<T>) {
                return 0;
            } else {
                throw_not_copyable(typeid(T));
            }
        }
        [[nodiscard]] std::unique_ptr<Payload> copy(
            [[maybe_unused]] MemoryReservation& reservation,
            [[maybe_unused]] ContentDescription& description) const override {
            if constexpr (CopiedByTraits<T>) {
                auto copied = std::make_unique<Holder<T>>(PayloadTraits<T>::copy(*value, reservation));
                describe_again(*copied->value, description);
                return copied;
            } else if constexpr (std::is_copy_constructible_v<T>) {
                return std::make_unique<Holder<T>>(T(*value));
            } else {
                throw_not_copyable(typeid(T));
            }
        }
        [[nodiscard]] Packing packing() const noexcept override {
            if constexpr (PackedByTraits<T>) {
                return PayloadTraits<T>::packing(*value);
            }
            return Packing::never;
        }
        [[nodiscard]] PackedData pack() override {
            if constexpr (PackedByMoving<T>) {
                auto packed = PayloadTraits<T>::pack(std::move(*value));
                value.reset();
                return packed;
            } else {
                throw_not_packed(typeid(T));
            }
        }
        void drop_value() noexcept override { value.reset(); }
        [[nodiscard]] PackedData packed_copy([[maybe_unused]] BufferResource& resource) const override {
            if constexpr (PackedByCopying<T>) {
                return PayloadTraits<T>::packed_copy(*value, resource);
            } else {
                throw_not_packed(typeid(T));
            }
        }
        void unpack(
            [[maybe_unused]] PackedData&& packed, [[maybe_unused]] ContentDescription& description) override {
            if constexpr (PackedByTraits<T>) {
                value.emplace(PayloadTraits<T>::unpack(std::move(packed)));
                describe_again(*value, description);
            } else {
                throw_not_packed(typeid(T));
            }
        }
        // Of the same payload elsewhere; an explicit description stays.
        static void describe_again(T const& payload, ContentDescription& description) {
            auto const other = PayloadTraits<T>::describe(payload);
            if (other.total_bytes() == description.total_bytes()) {
                description = other;
            }
        }
        std::optional<T> value;  // none while the message is parked
    };

    // For what keeps messages that wait, where nothing else refers to them meanwhile.
    friend class ParkedMessage;
    friend class Channel;
    [[nodiscard]] Packing packing() const noexcept { return payload_ ? payload_->packing() : Packing::never; }
    [[nodiscard]] PackedData pack() { return payload_->pack(); }
    [[nodiscard]] PackedData packed_copy(BufferResource& resource) const {
        return payload_->packed_copy(resource);
    }
    void drop_value() noexcept { payload_->drop_value(); }
    void unpack(PackedData packed) { payload_->unpack(std::move(packed), description_); }

    void check(std::type_info const& wanted) const;
    void check_not_empty() const;

    ContentDescription description_;
    std::unique_ptr<Payload> payload_;
    std::uint64_t sequence_{0};
};

}  // namespace rapidsmpf::streaming
