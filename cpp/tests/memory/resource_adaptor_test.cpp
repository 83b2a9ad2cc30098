#include <rapidsmpf/memory/resource_adaptor.hpp>

#include <cstdint>
#include <latch>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include <rapidsmpf/core/error.hpp>

#include "memory/resource_support.hpp"

namespace rapidsmpf {
namespace {

using testing::BrokenResource;
using testing::LimitedResource;

std::shared_ptr<RmmResourceAdaptor> over_host() {
    return std::make_shared<RmmResourceAdaptor>(std::make_shared<HostMemoryResource>());
}

// A block that is there as long as this object.
class Block {
  public:
    Block(std::shared_ptr<RmmResourceAdaptor> mr, std::size_t bytes)
        : mr_{std::move(mr)}, bytes_{bytes}, pointer_{mr_->allocate(bytes, Stream{})} {}
    Block(Block&& other) noexcept
        : mr_{std::move(other.mr_)}, bytes_{other.bytes_}, pointer_{std::exchange(other.pointer_, nullptr)} {}
    Block(Block const&) = delete;
    Block& operator=(Block&&) = delete;
    Block& operator=(Block const&) = delete;
    ~Block() {
        if (mr_) {
            mr_->deallocate(pointer_, bytes_, Stream{});
        }
    }

  private:
    std::shared_ptr<RmmResourceAdaptor> mr_;
    std::size_t bytes_;
    void* pointer_;
};

TEST(RmmResourceAdaptor, NeedsAnUpstream) {
    EXPECT_THROW(RmmResourceAdaptor{nullptr}, std::invalid_argument);
}

TEST(RmmResourceAdaptor, CountsWhatIsInUse) {
    auto const mr = over_host();
    {
        Block const first{mr, 100};
        Block const second{mr, 50};
        EXPECT_EQ(mr->current_allocated(), 150);
    }
    EXPECT_EQ(mr->current_allocated(), 0);
    auto const record = mr->get_main_record();
    EXPECT_EQ(record.peak(), 150);
    EXPECT_EQ(record.total(), 150);
    EXPECT_EQ(record.num_total_allocs(), 2);
    EXPECT_EQ(record.num_current_allocs(), 0);
    EXPECT_EQ(record.peak(AllocType::PRIMARY), 150);
    EXPECT_EQ(record.peak(AllocType::FALLBACK), 0);
}

TEST(RmmResourceAdaptor, FailedAllocationsDoNotCount) {
    auto const mr = std::make_shared<RmmResourceAdaptor>(std::make_shared<LimitedResource>(100));
    EXPECT_THROW((void)mr->allocate(101, Stream{}), OutOfMemory);
    EXPECT_EQ(mr->get_main_record(), ScopedMemoryRecord{});
}

TEST(RmmResourceAdaptor, FallbackServesWhatUpstreamCannot) {
    auto const upstream = std::make_shared<LimitedResource>(100);
    auto const fallback = std::make_shared<LimitedResource>(1000);
    auto const mr = std::make_shared<RmmResourceAdaptor>(upstream, fallback);
    {
        Block const small{mr, 80};
        Block const large{mr, 500};
        EXPECT_EQ(upstream->used(), 80);
        EXPECT_EQ(fallback->used(), 500);
        EXPECT_EQ(mr->current_allocated(), 580);
        auto const record = mr->get_main_record();
        EXPECT_EQ(record.current(AllocType::PRIMARY), 80);
        EXPECT_EQ(record.current(AllocType::FALLBACK), 500);
        EXPECT_EQ(record.num_current_allocs(AllocType::FALLBACK), 1);
    }
    // Each block went back to where it had come from.
    EXPECT_EQ(upstream->used(), 0);
    EXPECT_EQ(fallback->used(), 0);
    auto const record = mr->get_main_record();
    EXPECT_EQ(record.peak(AllocType::PRIMARY), 80);
    EXPECT_EQ(record.peak(AllocType::FALLBACK), 500);
    EXPECT_EQ(record.peak(AllocType::ALL), 580);
    EXPECT_EQ(record.current(AllocType::ALL), 0);
}

TEST(RmmResourceAdaptor, BothOutOfMemoryNamesBoth) {
    RmmResourceAdaptor mr{std::make_shared<LimitedResource>(100), std::make_shared<LimitedResource>(200)};
    try {
        (void)mr.allocate(300, Stream{});
        FAIL();
    } catch (OutOfMemory const& error) {
        std::string const text = error.what();
        EXPECT_NE(text.find("limited to 100"), std::string::npos) << text;
        EXPECT_NE(text.find("limited to 200"), std::string::npos) << text;
    }
}

TEST(RmmResourceAdaptor, FallbackIsForLackOfMemoryOnly) {
    RmmResourceAdaptor mr{std::make_shared<BrokenResource>(), std::make_shared<HostMemoryResource>()};
    EXPECT_THROW((void)mr.allocate(1, Stream{}), BadAlloc);
    EXPECT_EQ(mr.get_main_record().num_total_allocs(), 0);
}

TEST(RmmResourceAdaptor, AccessibleIsWhatBothAre) {
    auto const limited = std::make_shared<LimitedResource>(1);
    auto const broken = std::make_shared<BrokenResource>();
    EXPECT_FALSE((RmmResourceAdaptor{broken, limited}.is_device_accessible()));
    EXPECT_TRUE((RmmResourceAdaptor{broken, broken}.is_device_accessible()));
    EXPECT_TRUE((RmmResourceAdaptor{broken, limited}.is_host_accessible()));
}

TEST(RmmResourceAdaptor, ScopeCountsFromItsBegin) {
    auto const mr = over_host();
    Block const before{mr, 1000};
    mr->begin_scoped_memory_record();
    {
        Block const inside{mr, 100};
    }
    Block const stays{mr, 10};
    auto const record = mr->end_scoped_memory_record();
    Block const after{mr, 7};
    EXPECT_EQ(record.num_total_allocs(), 2);
    EXPECT_EQ(record.num_current_allocs(), 1);
    EXPECT_EQ(record.current(), 10);
    EXPECT_EQ(record.peak(), 100);
    EXPECT_EQ(record.total(), 110);
}

TEST(RmmResourceAdaptor, OuterScopeCountsTheInner) {
    auto const mr = over_host();
    mr->begin_scoped_memory_record();
    Block const first{mr, 1024};
    mr->begin_scoped_memory_record();
    Block const second{mr, 1024};
    EXPECT_EQ(mr->end_scoped_memory_record().peak(), 1024);
    auto const outer = mr->end_scoped_memory_record();
    EXPECT_EQ(outer.peak(), 2048);
    EXPECT_EQ(outer.num_total_allocs(), 2);
}

TEST(RmmResourceAdaptor, InnerScopeIsNotChargedForWhatItDidNotAllocate) {
    auto const mr = over_host();
    mr->begin_scoped_memory_record();
    std::vector<Block> outer_blocks;
    outer_blocks.emplace_back(mr, 100);
    mr->begin_scoped_memory_record();
    Block const inside{mr, 50};
    outer_blocks.clear();
    auto const inner = mr->end_scoped_memory_record();
    auto const outer = mr->end_scoped_memory_record();
    EXPECT_EQ(inner.current(), 50);
    EXPECT_EQ(inner.num_current_allocs(), 1);
    EXPECT_EQ(outer.current(), 50);
    EXPECT_EQ(outer.peak(), 150);  // both were there at once
}

TEST(RmmResourceAdaptor, BlockThatOutlivesItsScopeGoesFromTheOuterOne) {
    auto const mr = over_host();
    mr->begin_scoped_memory_record();
    std::vector<Block> blocks;
    mr->begin_scoped_memory_record();
    blocks.emplace_back(mr, 30);
    EXPECT_EQ(mr->end_scoped_memory_record().current(), 30);
    blocks.clear();
    EXPECT_EQ(mr->end_scoped_memory_record().current(), 0);
}

TEST(RmmResourceAdaptor, DeallocationInAnotherThreadReachesTheScope) {
    auto const mr = over_host();
    mr->begin_scoped_memory_record();
    void* const pointer = mr->allocate(64, Stream{});
    std::thread{[&] { mr->deallocate(pointer, 64, Stream{}); }}.join();
    auto const record = mr->end_scoped_memory_record();
    EXPECT_EQ(record.current(), 0);
    EXPECT_EQ(record.peak(), 64);
    EXPECT_EQ(mr->current_allocated(), 0);
}

TEST(RmmResourceAdaptor, OtherThreadsAreNotInTheScopeButInItsGlobalPeak) {
    auto const mr = over_host();
    Block const before{mr, 1};
    mr->begin_scoped_memory_record();
    std::thread{[&] { Block const elsewhere{mr, 500}; }}.join();
    Block const inside{mr, 20};
    auto const measured = mr->end_scope();
    EXPECT_EQ(measured.record.peak(), 20);
    EXPECT_EQ(measured.global_peak, 501);
}

TEST(RmmResourceAdaptor, GlobalPeakIsOfTheScopesOwnTime) {
    auto const mr = over_host();
    {
        Block const earlier{mr, 10'000};
    }
    mr->begin_scoped_memory_record();
    Block const first{mr, 100};
    mr->begin_scoped_memory_record();
    {
        Block const inner{mr, 40};
    }
    EXPECT_EQ(mr->end_scope().global_peak, 140);
    {
        Block const later{mr, 70};
    }
    EXPECT_EQ(mr->end_scope().global_peak, 170);
    EXPECT_EQ(mr->get_main_record().peak(), 10'000);
}

TEST(RmmResourceAdaptor, GlobalPeakBeginsWithWhatIsInUse) {
    auto const mr = over_host();
    Block const before{mr, 300};
    mr->begin_scoped_memory_record();
    EXPECT_EQ(mr->end_scope().global_peak, 300);
}

TEST(RmmResourceAdaptor, ScopesOfThreadsAreTheirOwn) {
    auto const mr = over_host();
    mr->begin_scoped_memory_record();
    std::thread{[&] { EXPECT_THROW((void)mr->end_scoped_memory_record(), std::logic_error); }}.join();
    (void)mr->end_scoped_memory_record();
    EXPECT_THROW((void)mr->end_scoped_memory_record(), std::logic_error);
}

TEST(RmmResourceAdaptor, ScopeKnowsWhatTheFallbackServed) {
    auto const mr = std::make_shared<RmmResourceAdaptor>(
        std::make_shared<LimitedResource>(100), std::make_shared<HostMemoryResource>());
    mr->begin_scoped_memory_record();
    {
        Block const large{mr, 200};
    }
    Block const small{mr, 60};
    auto const record = mr->end_scoped_memory_record();
    EXPECT_EQ(record.total(AllocType::FALLBACK), 200);
    EXPECT_EQ(record.current(AllocType::FALLBACK), 0);
    EXPECT_EQ(record.current(AllocType::PRIMARY), 60);
}

TEST(RmmResourceAdaptor, CountsAddUpOverThreads) {
    auto const mr = std::make_shared<RmmResourceAdaptor>(
        std::make_shared<LimitedResource>(2'000), std::make_shared<HostMemoryResource>());
    constexpr int rounds = 300;
    constexpr int workers = 4;
    std::latch start{workers};
    std::vector<std::thread> threads;
    std::vector<ScopedMemoryRecord> scoped(workers);
    std::vector<std::vector<void*>> passed_on(workers);
    for (int worker = 0; worker < workers; ++worker) {
        threads.emplace_back([&, worker] {
            start.arrive_and_wait();
            mr->begin_scoped_memory_record();
            for (int i = 0; i < rounds; ++i) {
                Block const block{mr, 1'000};
                if (i % 10 == 0) {
                    passed_on[static_cast<std::size_t>(worker)].push_back(mr->allocate(8, Stream{}));
                }
            }
            scoped[static_cast<std::size_t>(worker)] = mr->end_scoped_memory_record();
        });
    }
    for (auto& thread : threads) {
        thread.join();
    }
    for (auto const& record : scoped) {
        EXPECT_EQ(record.num_total_allocs(), rounds + rounds / 10);
        EXPECT_EQ(record.num_current_allocs(), rounds / 10);
    }
    EXPECT_EQ(mr->current_allocated(), workers * rounds / 10 * 8);
    for (auto const& pointers : passed_on) {
        for (auto* const pointer : pointers) {
            mr->deallocate(pointer, 8, Stream{});
        }
    }
    auto const record = mr->get_main_record();
    EXPECT_EQ(record.num_total_allocs(), workers * (rounds + rounds / 10));
    EXPECT_EQ(record.num_current_allocs(), 0);
    EXPECT_EQ(record.current(AllocType::PRIMARY), 0);
    EXPECT_EQ(record.current(AllocType::FALLBACK), 0);
    EXPECT_LE(record.peak(), workers * 1'000 + workers * rounds / 10 * 8);
    EXPECT_GE(record.peak(), 1'000);
}

}  // namespace
}  // namespace rapidsmpf
