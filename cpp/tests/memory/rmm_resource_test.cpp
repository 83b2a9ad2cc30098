#include <rapidsmpf/memory/rmm_resource.hpp>

#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>

#include <gtest/gtest.h>
#include <rmm/error.hpp>
#include <rmm/mr/callback_memory_resource.hpp>
#include <rmm/mr/limiting_resource_adaptor.hpp>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/memory/resource_adaptor.hpp>

#include "memory/resource_support.hpp"

namespace rapidsmpf {
namespace {

// An RMM resource over malloc: works with and without a GPU.
rmm::mr::callback_memory_resource over_malloc() {
    return rmm::mr::callback_memory_resource{
        [](std::size_t bytes, cuda::stream_ref, void*) {
            return std::aligned_alloc(256, (bytes + 255) / 256 * 256);
        },
        [](void* pointer, std::size_t, cuda::stream_ref, void*) { std::free(pointer); }};
}

rmm::mr::callback_memory_resource raising(bool out_of_memory) {
    return rmm::mr::callback_memory_resource{
        [out_of_memory](std::size_t, cuda::stream_ref, void*) -> void* {
            if (out_of_memory) {
                throw rmm::out_of_memory{"no more"};
            }
            throw rmm::bad_alloc{"not today"};
        },
        [](void*, std::size_t, cuda::stream_ref, void*) {}};
}

TEST(RmmResource, AllocatesFromTheRmmResource) {
    auto upstream = over_malloc();
    RmmResource mr{upstream};
    auto* const pointer = mr.allocate(100, Stream{});
    std::memset(pointer, 1, 100);
    mr.deallocate(pointer, 100, Stream{});
}

TEST(RmmResource, KeepsTheResourceAndTheOwner) {
    auto owner = std::make_shared<int>(1);
    std::weak_ptr<int> const watch = owner;
    auto upstream = std::make_unique<rmm::mr::callback_memory_resource>(over_malloc());
    auto mr = std::make_unique<RmmResource>(*upstream, std::move(owner));
    upstream.reset();
    auto* const pointer = mr->allocate(8, Stream{});
    mr->deallocate(pointer, 8, Stream{});
    EXPECT_FALSE(watch.expired());
    mr.reset();
    EXPECT_TRUE(watch.expired());
}

TEST(RmmResource, LackOfMemoryKeepsItsMeaning) {
    auto full = raising(true);
    EXPECT_THROW((void)RmmResource{full}.allocate(8, Stream{}), OutOfMemory);
    auto broken = raising(false);
    try {
        (void)RmmResource{broken}.allocate(8, Stream{});
        FAIL();
    } catch (OutOfMemory const&) {
        FAIL() << "a failure is not a lack of memory";
    } catch (BadAlloc const& error) {
        EXPECT_NE(std::string{error.what()}.find("not today"), std::string::npos) << error.what();
    }
}

TEST(RmmResource, AdaptorFallsBackFromAnRmmResource) {
    auto full = raising(true);
    auto const mr = std::make_shared<RmmResourceAdaptor>(
        std::make_shared<RmmResource>(full), std::make_shared<HostMemoryResource>());
    auto* const pointer = mr->allocate(8, Stream{});
    EXPECT_EQ(mr->get_main_record().current(AllocType::FALLBACK), 8);
    mr->deallocate(pointer, 8, Stream{});
}

TEST(RmmView, IsAnRmmResource) {
    auto const adaptor = std::make_shared<RmmResourceAdaptor>(std::make_shared<HostMemoryResource>());
    RmmView view{adaptor};
    rmm::mr::limiting_resource_adaptor limited{rmm::device_async_resource_ref{view}, 1000};
    auto* const pointer = limited.allocate(cuda::stream_ref{cudaStream_t{}}, 256, 256);
    EXPECT_EQ(adaptor->current_allocated(), 256);
    limited.deallocate(cuda::stream_ref{cudaStream_t{}}, pointer, 256, 256);
    EXPECT_EQ(adaptor->current_allocated(), 0);
}

TEST(RmmView, AllocatesWithoutAStream) {
    auto const adaptor = std::make_shared<RmmResourceAdaptor>(std::make_shared<HostMemoryResource>());
    RmmView view{adaptor};
    auto* const pointer = view.allocate_sync(10);
    EXPECT_EQ(adaptor->current_allocated(), 10);
    view.deallocate_sync(pointer, 10);
    EXPECT_EQ(adaptor->current_allocated(), 0);
}

TEST(RmmView, CopiesAreTheSameResource) {
    auto const host = std::make_shared<HostMemoryResource>();
    RmmView const view{host};
    RmmView const copy = view;
    EXPECT_EQ(copy, view);
    EXPECT_NE(view, RmmView{std::make_shared<HostMemoryResource>()});
}

TEST(RmmView, ErrorsAreRmmErrors) {
    cuda::stream_ref const stream{cudaStream_t{}};
    RmmView full{std::make_shared<testing::LimitedResource>(10)};
    EXPECT_THROW((void)full.allocate(stream, 11), rmm::out_of_memory);
    RmmView broken{std::make_shared<testing::BrokenResource>()};
    EXPECT_THROW((void)broken.allocate(stream, 1), rmm::bad_alloc);
    RmmView host{std::make_shared<HostMemoryResource>()};
    EXPECT_THROW((void)host.allocate(stream, 1, 4096), rmm::bad_alloc);
}

TEST(RmmView, ThereAndBackIsTheSameMemory) {
    auto const adaptor = std::make_shared<RmmResourceAdaptor>(std::make_shared<HostMemoryResource>());
    RmmView view{adaptor};
    RmmResource mr{view};
    auto* const pointer = mr.allocate(30, Stream{});
    EXPECT_EQ(adaptor->current_allocated(), 30);
    mr.deallocate(pointer, 30, Stream{});
    EXPECT_EQ(adaptor->current_allocated(), 0);
}

}  // namespace
}  // namespace rapidsmpf
