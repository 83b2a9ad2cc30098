// Thirty-two lanes that work in step: a warp of a GPU, or a loop on the CPU. What is written against this runs as a kernel and,
// the same code, in tests and fuzzers on machines without a GPU.
//
// A value that differs from lane to lane is a Lanes::Value<T>, which is a register in a kernel and an array of 32 on the CPU.
// Other variables have the same value in all lanes. each() runs a function for every lane; what lanes write to memory in one
// each() is seen by all of them in the next.
#pragma once

#include <array>
#include <bit>
#include <cstdint>

#ifdef __CUDACC__
#define RAPIDSMPF_DEVICE __host__ __device__ __forceinline__
#else
#define RAPIDSMPF_DEVICE inline
#endif

// Before a loop over an array that is to be in registers.
#ifdef __CUDA_ARCH__
#define RAPIDSMPF_UNROLL _Pragma("unroll")
#else
#define RAPIDSMPF_UNROLL
#endif

namespace rapidsmpf::pages {

inline constexpr std::uint32_t lane_count = 32;

class LanesOnCpu {
  public:
    template <typename T>
    struct Value {
        std::array<T, lane_count> of;
        T& operator[](std::uint32_t lane) { return of[lane]; }
        T const& operator[](std::uint32_t lane) const { return of[lane]; }
    };

    template <typename Function>
    void each(Function&& function) const {
        for (std::uint32_t lane = 0; lane < lane_count; ++lane) {
            function(lane);
        }
    }

    // Bit n: the value of lane n.
    [[nodiscard]] std::uint32_t ballot(Value<bool> const& value) const {
        std::uint32_t bits = 0;
        each([&](auto lane) { bits |= static_cast<std::uint32_t>(value[lane]) << lane; });
        return bits;
    }

    // The values of all lanes, joined by "or".
    [[nodiscard]] std::uint32_t any_bits(Value<std::uint32_t> const& value) const {
        std::uint32_t bits = 0;
        each([&](auto lane) { bits |= value[lane]; });
        return bits;
    }

    // Each lane gets the value of the lane that it names.
    template <typename T>
    [[nodiscard]] Value<T> from(Value<T> const& value, Value<std::uint32_t> const& lanes) const {
        Value<T> result;
        each([&](auto lane) { result[lane] = value[lanes[lane] % lane_count]; });
        return result;
    }

    template <typename T>
    [[nodiscard]] T of_lane(Value<T> const& value, std::uint32_t lane) const {
        return value[lane];
    }

    // The sums of the values of all lanes before each.
    [[nodiscard]] Value<std::uint32_t> sums_before(
        Value<std::uint32_t> const& value, std::uint32_t& total) const {
        Value<std::uint32_t> result;
        total = 0;
        each([&](auto lane) {
            result[lane] = total;
            total += value[lane];
        });
        return result;
    }

    [[nodiscard]] std::uint32_t sum(Value<std::uint32_t> const& value) const {
        std::uint32_t total = 0;
        each([&](auto lane) { total += value[lane]; });
        return total;
    }

    // Adds to a counter that several groups of lanes share; returns what it was.
    static std::uint32_t add(std::uint32_t& counter, std::uint32_t n) {
        auto const was = counter;
        counter += n;
        return was;
    }
    // Sets bits of a word in which other groups of lanes may set others.
    static void set_bits(std::uint32_t& word, std::uint32_t bits) { word |= bits; }
    // Sets a word that is 0; returns what it was.
    static std::uint32_t set_if_zero(std::uint32_t& word, std::uint32_t value) {
        auto const was = word;
        if (was == 0) {
            word = value;
        }
        return was;
    }
    static void raise(std::uint32_t& flag, std::uint32_t value) { (void)set_if_zero(flag, value); }
    // Reads what other groups of lanes may have written.
    [[nodiscard]] static std::uint32_t fresh(std::uint32_t const& word) { return word; }
};

#ifdef __CUDACC__
class LanesOfWarp {
  public:
    template <typename T>
    struct Value {
        T of;
        __device__ __forceinline__ T& operator[](std::uint32_t) { return of; }
        __device__ __forceinline__ T const& operator[](std::uint32_t) const { return of; }
    };

    __device__ __forceinline__ explicit LanesOfWarp(std::uint32_t lane) : lane_{lane} {}

    template <typename Function>
    __device__ __forceinline__ void each(Function&& function) const {
        function(lane_);
        __syncwarp();
    }

    [[nodiscard]] __device__ __forceinline__ std::uint32_t ballot(Value<bool> const& value) const {
        return __ballot_sync(all, value.of);
    }

    [[nodiscard]] __device__ __forceinline__ std::uint32_t any_bits(Value<std::uint32_t> const& value) const {
        return __reduce_or_sync(all, value.of);
    }

    template <typename T>
    [[nodiscard]] __device__ __forceinline__ Value<T> from(
        Value<T> const& value, Value<std::uint32_t> const& lanes) const {
        return {__shfl_sync(all, value.of, static_cast<int>(lanes.of))};
    }

    template <typename T>
    [[nodiscard]] __device__ __forceinline__ T of_lane(Value<T> const& value, std::uint32_t lane) const {
        return __shfl_sync(all, value.of, static_cast<int>(lane));
    }

    [[nodiscard]] __device__ __forceinline__ Value<std::uint32_t> sums_before(
        Value<std::uint32_t> const& value, std::uint32_t& total) const {
        auto sum = value.of;
#pragma unroll
        for (std::uint32_t distance = 1; distance < lane_count; distance *= 2) {
            auto const other = __shfl_up_sync(all, sum, distance);
            sum += lane_ >= distance ? other : 0;
        }
        total = __shfl_sync(all, sum, lane_count - 1);
        return {sum - value.of};
    }

    [[nodiscard]] __device__ __forceinline__ std::uint32_t sum(Value<std::uint32_t> const& value) const {
        return __reduce_add_sync(all, value.of);
    }

    __device__ __forceinline__ static std::uint32_t add(std::uint32_t& counter, std::uint32_t n) {
        return atomicAdd(&counter, n);
    }
    __device__ __forceinline__ static void set_bits(std::uint32_t& word, std::uint32_t bits) {
        atomicOr(&word, bits);
    }
    __device__ __forceinline__ static std::uint32_t set_if_zero(std::uint32_t& word, std::uint32_t value) {
        return atomicCAS(&word, 0U, value);
    }
    __device__ __forceinline__ static void raise(std::uint32_t& flag, std::uint32_t value) {
        (void)set_if_zero(flag, value);
    }
    [[nodiscard]] __device__ __forceinline__ static std::uint32_t fresh(std::uint32_t const& word) {
        return *static_cast<std::uint32_t const volatile*>(&word);
    }

  private:
    static constexpr std::uint32_t all = 0xffffffffU;
    std::uint32_t lane_;
};
#endif

[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t count_bits(std::uint64_t bits) {
#ifdef __CUDA_ARCH__
    return static_cast<std::uint32_t>(__popcll(bits));
#else
    return static_cast<std::uint32_t>(std::popcount(bits));
#endif
}

// The place of the lowest bit that is set; one is.
[[nodiscard]] RAPIDSMPF_DEVICE std::uint32_t lowest_bit(std::uint64_t bits) {
#ifdef __CUDA_ARCH__
    return static_cast<std::uint32_t>(__ffsll(static_cast<long long>(bits)) - 1);
#else
    return static_cast<std::uint32_t>(std::countr_zero(bits));
#endif
}

}  // namespace rapidsmpf::pages
