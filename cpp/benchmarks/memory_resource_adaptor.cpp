// What counting costs: an allocation and a deallocation through RmmResourceAdaptor, beside the same through a
// resource that counts under one mutex, and beside the bare upstream. The upstream does nothing, so that the
// counting is all there is; run with one thread and with several on the same resource.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include <benchmark/benchmark.h>

#include <rapidsmpf/memory/resource_adaptor.hpp>

namespace {

using rapidsmpf::MemoryResource;
using rapidsmpf::RmmResourceAdaptor;
using rapidsmpf::Stream;

// Hands out addresses of nothing.
class NoMemory final : public MemoryResource {
  public:
    [[nodiscard]] void* allocate(std::size_t /*bytes*/, Stream /*stream*/) override {
        thread_local std::uintptr_t next = reinterpret_cast<std::uintptr_t>(&next);
        return reinterpret_cast<void*>(next += 256);
    }
    void deallocate(void* /*pointer*/, std::size_t /*bytes*/, Stream /*stream*/) noexcept override {}
    [[nodiscard]] bool is_host_accessible() const noexcept override { return false; }
    [[nodiscard]] bool is_device_accessible() const noexcept override { return false; }
};

// The obvious way to count.
class CountsUnderAMutex final : public MemoryResource {
  public:
    explicit CountsUnderAMutex(std::shared_ptr<MemoryResource> upstream) : upstream_{std::move(upstream)} {}

    [[nodiscard]] void* allocate(std::size_t bytes, Stream stream) override {
        auto* const pointer = upstream_->allocate(bytes, stream);
        std::lock_guard lock{mutex_};
        record_.record_allocation(rapidsmpf::AllocType::PRIMARY, static_cast<std::int64_t>(bytes));
        return pointer;
    }
    void deallocate(void* pointer, std::size_t bytes, Stream stream) noexcept override {
        upstream_->deallocate(pointer, bytes, stream);
        std::lock_guard lock{mutex_};
        record_.record_deallocation(rapidsmpf::AllocType::PRIMARY, static_cast<std::int64_t>(bytes));
    }
    [[nodiscard]] bool is_host_accessible() const noexcept override { return false; }
    [[nodiscard]] bool is_device_accessible() const noexcept override { return false; }

  private:
    std::shared_ptr<MemoryResource> upstream_;
    std::mutex mutex_;
    rapidsmpf::ScopedMemoryRecord record_;
};

// What the threads of a run share; the scopes are each thread's own.
enum class Kind : std::uint8_t { upstream, mutex, adaptor, adaptor_in_scope, adaptor_with_fallback };

std::shared_ptr<MemoryResource> make(Kind kind) {
    auto upstream = std::make_shared<NoMemory>();
    switch (kind) {
        case Kind::upstream:
            return upstream;
        case Kind::mutex:
            return std::make_shared<CountsUnderAMutex>(std::move(upstream));
        case Kind::adaptor_with_fallback:
            return std::make_shared<RmmResourceAdaptor>(upstream, upstream);
        case Kind::adaptor:
        case Kind::adaptor_in_scope:
            break;
    }
    return std::make_shared<RmmResourceAdaptor>(std::move(upstream));
}

template <Kind kind>
void allocate_and_deallocate(benchmark::State& state) {
    static std::shared_ptr<MemoryResource> const mr = make(kind);
    auto* const adaptor = dynamic_cast<RmmResourceAdaptor*>(mr.get());
    if (kind == Kind::adaptor_in_scope) {
        adaptor->begin_scoped_memory_record();
    }
    for (auto _ : state) {
        auto* const pointer = mr->allocate(4096, Stream{});
        benchmark::DoNotOptimize(pointer);
        mr->deallocate(pointer, 4096, Stream{});
    }
    if (kind == Kind::adaptor_in_scope) {
        benchmark::DoNotOptimize(adaptor->end_scoped_memory_record());
    }
}

BENCHMARK(allocate_and_deallocate<Kind::upstream>)->Name("upstream")->ThreadRange(1, 8);
BENCHMARK(allocate_and_deallocate<Kind::mutex>)->Name("mutex")->ThreadRange(1, 8);
BENCHMARK(allocate_and_deallocate<Kind::adaptor>)->Name("adaptor")->ThreadRange(1, 8);
BENCHMARK(allocate_and_deallocate<Kind::adaptor_with_fallback>)
    ->Name("adaptor_with_fallback")
    ->ThreadRange(1, 8);
BENCHMARK(allocate_and_deallocate<Kind::adaptor_in_scope>)->Name("adaptor_in_scope")->ThreadRange(1, 8);

}  // namespace
