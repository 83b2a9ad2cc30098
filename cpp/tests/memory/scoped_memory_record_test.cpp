#include <rapidsmpf/memory/scoped_memory_record.hpp>

#include <stdexcept>

#include <gtest/gtest.h>

namespace rapidsmpf {
namespace {

TEST(ScopedMemoryRecord, StartsEmpty) {
    ScopedMemoryRecord const record;
    for (auto const type : {AllocType::PRIMARY, AllocType::FALLBACK, AllocType::ALL}) {
        EXPECT_EQ(record.num_total_allocs(type), 0);
        EXPECT_EQ(record.num_current_allocs(type), 0);
        EXPECT_EQ(record.current(type), 0);
        EXPECT_EQ(record.total(type), 0);
        EXPECT_EQ(record.peak(type), 0);
    }
}

TEST(ScopedMemoryRecord, CountsByAllocator) {
    ScopedMemoryRecord record;
    record.record_allocation(AllocType::PRIMARY, 100);
    record.record_allocation(AllocType::FALLBACK, 10);
    record.record_deallocation(AllocType::PRIMARY, 100);
    record.record_allocation(AllocType::FALLBACK, 20);
    EXPECT_EQ(record.current(AllocType::PRIMARY), 0);
    EXPECT_EQ(record.current(AllocType::FALLBACK), 30);
    EXPECT_EQ(record.current(), 30);
    EXPECT_EQ(record.num_total_allocs(), 3);
    EXPECT_EQ(record.num_current_allocs(), 2);
    EXPECT_EQ(record.num_current_allocs(AllocType::PRIMARY), 0);
    EXPECT_EQ(record.total(), 130);
}

TEST(ScopedMemoryRecord, PeakOfAllIsNotTheSumOfThePeaks) {
    ScopedMemoryRecord record;
    record.record_allocation(AllocType::PRIMARY, 100);
    record.record_deallocation(AllocType::PRIMARY, 100);
    record.record_allocation(AllocType::FALLBACK, 70);
    EXPECT_EQ(record.peak(AllocType::PRIMARY), 100);
    EXPECT_EQ(record.peak(AllocType::FALLBACK), 70);
    EXPECT_EQ(record.peak(AllocType::ALL), 100);
}

TEST(ScopedMemoryRecord, NoAllocatorIsAll) {
    ScopedMemoryRecord record;
    EXPECT_THROW(record.record_allocation(AllocType::ALL, 1), std::invalid_argument);
    EXPECT_THROW(record.record_deallocation(AllocType::ALL, 1), std::invalid_argument);
    EXPECT_EQ(record, ScopedMemoryRecord{});
}

TEST(ScopedMemoryRecord, SubscopeStandsOnWhatItsScopeHolds) {
    ScopedMemoryRecord outer;
    outer.record_allocation(AllocType::PRIMARY, 100);
    ScopedMemoryRecord inner;
    inner.record_allocation(AllocType::PRIMARY, 50);
    inner.record_deallocation(AllocType::PRIMARY, 50);
    inner.record_allocation(AllocType::PRIMARY, 5);
    outer.add_subscope(inner);
    EXPECT_EQ(outer.peak(), 150);
    EXPECT_EQ(outer.current(), 105);
    EXPECT_EQ(outer.total(), 155);
    EXPECT_EQ(outer.num_total_allocs(), 3);
    EXPECT_EQ(outer.num_current_allocs(), 2);
}

TEST(ScopedMemoryRecord, AnotherRunOfAScopeHasItsOwnPeak) {
    ScopedMemoryRecord first;
    first.record_allocation(AllocType::PRIMARY, 100);
    first.record_deallocation(AllocType::PRIMARY, 100);
    ScopedMemoryRecord second;
    second.record_allocation(AllocType::PRIMARY, 60);
    first.add_scope(second);
    EXPECT_EQ(first.peak(), 100);
    EXPECT_EQ(first.current(), 60);
    EXPECT_EQ(first.total(), 160);
    EXPECT_EQ(first.num_total_allocs(), 2);
}

}  // namespace
}  // namespace rapidsmpf
