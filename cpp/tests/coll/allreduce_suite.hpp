// AllReduce on every rank: values, order, large arrays, errors. See suite_support.hpp.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <functional>
#include <string>
#include <thread>

#include <rapidsmpf/coll/allreduce.hpp>
#include <rapidsmpf/coll/barrier.hpp>

#include "coll/suite_support.hpp"

namespace rapidsmpf::suite {

using coll::AllReduce;
using coll::Reduction;

inline void reduce_scalars(std::shared_ptr<Communicator> comm) {
    auto const n = static_cast<std::int64_t>(comm->nranks());
    auto const me = static_cast<std::int64_t>(comm->rank());
    for (int round = 0; round < 6; ++round) {
        SUITE_CHECK(coll::allreduce(comm, 2, me + 1, std::plus<>(), patience) == n * (n + 1) / 2);
    }
    auto const larger = [](double a, double b) { return std::max(a, b); };
    SUITE_CHECK(coll::allreduce(comm, 2, -1.5 * static_cast<double>(me), larger, patience) == 0.0);
    auto const smaller = [](std::uint8_t a, std::uint8_t b) { return std::min(a, b); };
    SUITE_CHECK(coll::allreduce(comm, 2, static_cast<std::uint8_t>(200 + me), smaller, patience) == 200);
}

// Floating point sums depend on the order, and the order is that of the ranks: the same bits everywhere.
inline void reduce_array(std::shared_ptr<Communicator> const& comm, std::size_t elements) {
    auto const value = [](Rank rank, std::size_t i) {
        return static_cast<float>(
                   std::ldexp(1.0 + static_cast<double>(mix(i) % 1000), static_cast<int>(rank * 7 % 23)))
               / 3.0F;
    };
    std::vector<float> mine(elements);
    for (std::size_t i = 0; i < elements; ++i) {
        mine[i] = value(comm->rank(), i);
    }
    auto const sum = coll::allreduce<float>(comm, 2, std::span<float const>{mine}, std::plus<>(), patience);
    SUITE_CHECK(sum.size() == elements);
    for (std::size_t i = 0; i < elements; ++i) {
        float expected = value(0, i);
        for (Rank rank = 1; rank < comm->nranks(); ++rank) {
            expected += value(rank, i);
        }
        SUITE_CHECK(sum[i] == expected);
    }
}

inline void reduce_arrays(std::shared_ptr<Communicator> comm) {
    for (std::size_t const elements : {0U, 1U, 3U, 1'000U}) {
        reduce_array(comm, elements);
    }
}

// The ranks divide the array into a segment for each; the count is no multiple of any number of ranks.
inline void reduce_large_arrays(std::shared_ptr<Communicator> comm) {
    reduce_array(comm, 70'001);
}

// What it holds counts in the budget of the caller's resource until it releases it.
inline void reduce_within_a_budget(std::shared_ptr<Communicator> comm) {
    auto const br = BufferResource::make();
    std::vector<std::int64_t> const mine(20'000, comm->rank() + 1);
    auto const bytes = static_cast<std::int64_t>(mine.size() * sizeof(std::int64_t));
    {
        AllReduce reduce{
            comm,
            2,
            std::as_bytes(std::span{mine}),
            coll::elementwise<std::int64_t>(std::plus<>()),
            exchange::Settings::for_device(Device::current()),
            br};
        SUITE_CHECK(reduce.wait_and_extract(patience).size() == static_cast<std::size_t>(bytes));
    }
    std::int64_t peak = 0;
    for (auto const type : {MemoryType::DEVICE, MemoryType::PINNED_HOST, MemoryType::HOST}) {
        peak += br->memory_peak(type);
    }
    SUITE_CHECK(peak >= bytes);
}

// Matrix products: not commutative, and no element stands alone.
inline void reduce_as_a_whole(std::shared_ptr<Communicator> comm) {
    using Matrix = std::array<std::int64_t, 4>;
    auto const product = [](Matrix const& a, Matrix const& b) {
        return Matrix{
            a[0] * b[0] + a[1] * b[2], a[0] * b[1] + a[1] * b[3], a[2] * b[0] + a[3] * b[2],
            a[2] * b[1] + a[3] * b[3]};
    };
    auto const of_rank = [](Rank rank) { return Matrix{rank + 1, 1, 1, 0}; };
    auto const combine = [&](std::span<std::byte> sum, std::span<std::byte const> next) {
        Matrix a;
        Matrix b;
        std::memcpy(&a, sum.data(), sizeof a);
        std::memcpy(&b, next.data(), sizeof b);
        a = product(a, b);
        std::memcpy(sum.data(), &a, sizeof a);
    };
    auto const mine = of_rank(comm->rank());
    auto expected = of_rank(0);
    for (Rank rank = 1; rank < comm->nranks(); ++rank) {
        expected = product(expected, of_rank(rank));
    }
    for (auto const runs_on : {coll::RunsOn::progress_thread, coll::RunsOn::waiting_thread}) {
        AllReduce reduce{comm, 2, std::as_bytes(std::span{mine}), Reduction{combine, 0, runs_on}};
        auto const bytes = reduce.wait_and_extract(patience);
        SUITE_CHECK(reduce.finished());
        SUITE_CHECK(bytes.size() == sizeof expected);
        SUITE_CHECK(std::memcmp(bytes.data(), expected.data(), bytes.size()) == 0);
        SUITE_THROWS(std::logic_error, reduce.wait_and_extract(patience));
    }
}

// No rank has to wait for the others to go on: even ranks wait for the first one first, odd ones for the last.
inline void reduce_several_in_any_order(std::shared_ptr<Communicator> comm) {
    constexpr OpId count = 6;
    std::vector<std::unique_ptr<AllReduce>> reduces;
    std::vector<std::int32_t> const mine(90'000, comm->rank() + 1);
    for (OpId op = 0; op < count; ++op) {
        // The ranks divide every other one into segments.
        std::size_t const elements = op % 2 == 0 ? mine.size() : 5;
        reduces.push_back(
            std::make_unique<AllReduce>(
                comm, 10 + op, std::as_bytes(std::span{mine}.first(elements)),
                coll::elementwise<std::int32_t>(std::plus<>())));
    }
    if (comm->rank() % 2 == 1) {
        std::reverse(reduces.begin(), reduces.end());
    }
    std::int32_t const expected = comm->nranks() * (comm->nranks() + 1) / 2;
    for (auto const& reduce : reduces) {
        auto const bytes = reduce->wait_and_extract(patience);
        std::vector<std::int32_t> result(bytes.size() / sizeof(std::int32_t));
        std::memcpy(result.data(), bytes.data(), bytes.size());
        SUITE_CHECK(!result.empty());
        SUITE_CHECK(std::all_of(result.begin(), result.end(), [&](auto value) { return value == expected; }));
    }
}

// The id is free as soon as the result has been taken, though the handle lives.
inline void reduce_with_the_same_id(std::shared_ptr<Communicator> comm) {
    std::vector<std::unique_ptr<AllReduce>> kept;
    for (std::int64_t round = 0; round < 8; ++round) {
        std::int64_t const mine = comm->rank() == 0 ? round : 0;
        kept.push_back(
            std::make_unique<AllReduce>(
                comm, 2, std::as_bytes(std::span{&mine, 1}), coll::elementwise<std::int64_t>(std::plus<>())));
        SUITE_THROWS(std::invalid_argument, coll::Barrier(comm, 2));
        auto const bytes = kept.back()->wait_and_extract(patience);
        std::int64_t result = -1;
        std::memcpy(&result, bytes.data(), sizeof result);
        SUITE_CHECK(result == round);
    }
}

// What the function throws is thrown where it ran, and everywhere else an error that quotes it.
inline void reduce_that_throws(std::shared_ptr<Communicator> comm) {
    if (comm->nranks() == 1) {
        return;  // nothing to combine
    }
    struct Refused : std::runtime_error {
        using std::runtime_error::runtime_error;
    };
    auto const refuse = [](std::int64_t a, std::int64_t b) -> std::int64_t {
        if (a + b > 0) {
            throw Refused{"that is too much"};
        }
        return 0;
    };
    for (std::size_t const elements :
         {std::size_t{1}, std::size_t{50'000}}) {  // one segment; one for each rank
        std::vector<std::int64_t> const mine(elements, 1);
        std::string text;
        try {
            (void)coll::allreduce<std::int64_t>(
                comm, 2, std::span<std::int64_t const>{mine}, refuse, patience);
        } catch (Refused const& error) {
            SUITE_CHECK(elements > 1 || comm->rank() == 0);
            text = error.what();
        } catch (std::runtime_error const& error) {
            SUITE_CHECK(elements > 1 || comm->rank() != 0);
            text = error.what();
            SUITE_CHECK(text.find("abandoned allreduce 2") != std::string::npos);
        }
        SUITE_CHECK(text.find("that is too much") != std::string::npos);
        // The communicator is as good as before.
        SUITE_CHECK(coll::allreduce(comm, 2, 1, std::plus<>(), patience) == comm->nranks());
    }
}

// The same for a function that runs where rank 0 waits.
inline void reduce_that_throws_where_it_is_waited_for(std::shared_ptr<Communicator> comm) {
    if (comm->nranks() == 1) {
        return;
    }
    struct Refused : std::runtime_error {
        using std::runtime_error::runtime_error;
    };
    auto const waiting = std::this_thread::get_id();
    Reduction const refuse{
        [&](std::span<std::byte>, std::span<std::byte const>) {
            throw Refused{waiting == std::this_thread::get_id() ? "that is too much" : "in another thread"};
        },
        0, coll::RunsOn::waiting_thread};
    std::array<std::byte, 8> const mine{};
    AllReduce reduce{comm, 2, mine, refuse};
    if (comm->rank() == 0) {
        SUITE_CHECK(SUITE_THROWS(Refused, reduce.wait_and_extract(patience)) == "that is too much");
    } else {
        auto const text = SUITE_THROWS(std::runtime_error, reduce.wait_and_extract(patience));
        SUITE_CHECK(
            text.find("rank 0 failed: it abandoned allreduce 2: that is too much") != std::string::npos);
    }
    SUITE_THROWS(std::runtime_error, reduce.wait_and_extract(patience));
}

inline void reduce_misuse(std::shared_ptr<Communicator> comm) {
    std::array<std::byte, 6> const bytes{};
    SUITE_THROWS(
        std::invalid_argument, AllReduce(comm, 2, bytes, coll::elementwise<std::int32_t>(std::plus<>())));
    SUITE_THROWS(std::invalid_argument, AllReduce(comm, 2, bytes, Reduction{nullptr}));
    SUITE_THROWS(std::invalid_argument, AllReduce(comm, -1, bytes, coll::elementwise<char>(std::plus<>())));
    if (comm->nranks() == 1) {
        return;
    }
    // Sizes that differ, small and so large that the ranks divide the arrays.
    for (std::size_t const more : {std::size_t{1}, std::size_t{80'000}}) {
        std::vector<std::int64_t> const mine(comm->rank() == 1 ? 3 + more : 3, 1);
        std::string text;
        try {
            (void)coll::allreduce<std::int64_t>(
                comm, 2, std::span<std::int64_t const>{mine}, std::plus<>(), patience);
        } catch (std::invalid_argument const& error) {
            text = error.what();  // the rank that found it
        } catch (std::runtime_error const& error) {
            text = error.what();
        }
        SUITE_CHECK(text.find("values of different sizes") != std::string::npos);
        SUITE_CHECK(text.find("rank 1 " + std::to_string(8 * (3 + more)) + " bytes") != std::string::npos);
    }
}

inline void reduce_timeout_names_who_is_missing(std::shared_ptr<Communicator> comm) {
    if (comm->nranks() == 1) {
        return;
    }
    Rank const slow = comm->nranks() - 1;
    std::int64_t const one = 1;
    auto const make = [&] {
        return std::make_unique<AllReduce>(
            comm, 2, std::as_bytes(std::span{&one, 1}), coll::elementwise<std::int64_t>(std::plus<>()));
    };
    std::unique_ptr<AllReduce> reduce;
    if (comm->rank() != slow) {
        reduce = make();
        SUITE_CHECK(!reduce->finished());
        auto const text = SUITE_THROWS(TimeoutError, reduce->wait_and_extract(std::chrono::milliseconds{1}));
        SUITE_CHECK(text.find("rank " + std::to_string(slow) + " has not finished it") != std::string::npos);
    }
    coll::barrier(comm, 3, patience);
    if (comm->rank() == slow) {
        reduce = make();
    }
    std::int64_t sum = 0;
    auto const bytes = reduce->wait_and_extract(patience);
    std::memcpy(&sum, bytes.data(), sizeof sum);
    SUITE_CHECK(sum == comm->nranks());
}

inline std::vector<Body> allreduce_bodies() {
    return {
        {"reduce_scalars", reduce_scalars},
        {"reduce_arrays", reduce_arrays},
        {"reduce_large_arrays", reduce_large_arrays},
        {"reduce_within_a_budget", reduce_within_a_budget},
        {"reduce_as_a_whole", reduce_as_a_whole},
        {"reduce_several_in_any_order", reduce_several_in_any_order},
        {"reduce_with_the_same_id", reduce_with_the_same_id},
        {"reduce_that_throws", reduce_that_throws},
        {"reduce_that_throws_where_it_is_waited_for", reduce_that_throws_where_it_is_waited_for},
        {"reduce_misuse", reduce_misuse},
        {"reduce_timeout_names_who_is_missing", reduce_timeout_names_who_is_missing},
    };
}

}  // namespace rapidsmpf::suite
