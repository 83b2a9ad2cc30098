// The Arrow C data, stream and device interfaces (their ABI, from the Arrow specification) and owners that
// call `release` exactly once.
//
// An owner holds the struct itself and may hold nothing (released or never filled). To fill one from a
// producer, pass out(); to hand the content to a consumer, move_to(): the consumer then owns it.
#pragma once

#include <cstdint>

// The guards are those that the specification prescribes, so that this header and another copy of the same
// structs can meet in one translation unit.
extern "C" {

#ifndef ARROW_C_DATA_INTERFACE
#define ARROW_C_DATA_INTERFACE

#define ARROW_FLAG_DICTIONARY_ORDERED 1
#define ARROW_FLAG_NULLABLE 2
#define ARROW_FLAG_MAP_KEYS_SORTED 4

struct ArrowSchema {
    char const* format;
    char const* name;
    char const* metadata;
    int64_t flags;
    int64_t n_children;
    struct ArrowSchema** children;
    struct ArrowSchema* dictionary;
    void (*release)(struct ArrowSchema*);
    void* private_data;
};

struct ArrowArray {
    int64_t length;
    int64_t null_count;
    int64_t offset;
    int64_t n_buffers;
    int64_t n_children;
    void const** buffers;
    struct ArrowArray** children;
    struct ArrowArray* dictionary;
    void (*release)(struct ArrowArray*);
    void* private_data;
};

#endif  // ARROW_C_DATA_INTERFACE

#ifndef ARROW_C_DEVICE_DATA_INTERFACE
#define ARROW_C_DEVICE_DATA_INTERFACE

typedef int32_t ArrowDeviceType;
#define ARROW_DEVICE_CPU 1
#define ARROW_DEVICE_CUDA 2
#define ARROW_DEVICE_CUDA_HOST 3
#define ARROW_DEVICE_CUDA_MANAGED 13

struct ArrowDeviceArray {
    struct ArrowArray array;
    int64_t device_id;
    ArrowDeviceType device_type;
    void* sync_event;
    int64_t reserved[3];
};

#endif  // ARROW_C_DEVICE_DATA_INTERFACE

#ifndef ARROW_C_STREAM_INTERFACE
#define ARROW_C_STREAM_INTERFACE

struct ArrowArrayStream {
    int (*get_schema)(struct ArrowArrayStream*, struct ArrowSchema* out);
    int (*get_next)(struct ArrowArrayStream*, struct ArrowArray* out);
    char const* (*get_last_error)(struct ArrowArrayStream*);
    void (*release)(struct ArrowArrayStream*);
    void* private_data;
};

#endif  // ARROW_C_STREAM_INTERFACE

#ifndef ARROW_C_DEVICE_STREAM_INTERFACE
#define ARROW_C_DEVICE_STREAM_INTERFACE

struct ArrowDeviceArrayStream {
    ArrowDeviceType device_type;
    int (*get_schema)(struct ArrowDeviceArrayStream*, struct ArrowSchema* out);
    int (*get_next)(struct ArrowDeviceArrayStream*, struct ArrowDeviceArray* out);
    char const* (*get_last_error)(struct ArrowDeviceArrayStream*);
    void (*release)(struct ArrowDeviceArrayStream*);
    void* private_data;
};

#endif  // ARROW_C_DEVICE_STREAM_INTERFACE
}

namespace rapidsmpf {

// Owns one of the structs above. Movable: the ABI allows moving a struct by copying its bytes.
template <typename Struct>
class ArrowOwner {
  public:
    ArrowOwner() noexcept = default;
    // Takes the content of `source`, which is left released.
    explicit ArrowOwner(Struct* source) noexcept : value_{*source} { source->release = nullptr; }
    ArrowOwner(ArrowOwner&& other) noexcept : value_{other.value_} { other.value_.release = nullptr; }
    ArrowOwner& operator=(ArrowOwner&& other) noexcept {
        if (this != &other) {
            reset();
            value_ = other.value_;
            other.value_.release = nullptr;
        }
        return *this;
    }
    ArrowOwner(ArrowOwner const&) = delete;
    ArrowOwner& operator=(ArrowOwner const&) = delete;
    ~ArrowOwner() { reset(); }

    [[nodiscard]] explicit operator bool() const noexcept { return value_.release != nullptr; }
    [[nodiscard]] Struct* get() noexcept { return &value_; }
    [[nodiscard]] Struct const* get() const noexcept { return &value_; }
    [[nodiscard]] Struct* operator->() noexcept { return &value_; }
    [[nodiscard]] Struct const* operator->() const noexcept { return &value_; }

    // Where a producer shall write; what was held is released first.
    [[nodiscard]] Struct* out() noexcept {
        reset();
        return &value_;
    }
    // Hands the content over; nothing is held afterwards.
    void move_to(Struct* destination) noexcept {
        *destination = value_;
        value_.release = nullptr;
    }
    void reset() noexcept {
        if (value_.release != nullptr) {
            value_.release(&value_);
        }
        value_ = Struct{};
    }

  private:
    Struct value_{};
};

using ArrowSchemaOwner = ArrowOwner<ArrowSchema>;
using ArrowArrayOwner = ArrowOwner<ArrowArray>;
using ArrowStreamOwner = ArrowOwner<ArrowArrayStream>;

}  // namespace rapidsmpf
