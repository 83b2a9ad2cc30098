// The GPU's half of a shuffle's local work: bytes a second (read plus written) of partition_and_pack and
// unpack_and_concat, beside a plain copy of the device. Arguments: MiB of the table, partitions. Needs a GPU.
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include <benchmark/benchmark.h>
#include <rmm/mr/cuda_async_memory_resource.hpp>

#include <rapidsmpf/device/detail/gather_copy.hpp>
#include <rapidsmpf/memory/pinned_memory_resource.hpp>
#include <rapidsmpf/memory/rmm_resource.hpp>
#include <rapidsmpf/table/partition.hpp>

namespace {

using namespace rapidsmpf;

// One resource for all of a program: growing the driver's pool takes longer than what is measured.
std::shared_ptr<BufferResource> const& resource() {
    static auto const br = [] {
        BufferResource::Settings settings;
        rmm::mr::cuda_async_memory_resource pool{};
        settings.device_mr = std::make_shared<RmmResource>(rmm::device_async_resource_ref{pool});
        PinnedMemoryResource::Properties pinned;
        pinned.initial_pool_size = 64UL << 20U;
        settings.pinned_mr = PinnedMemoryResource::make_if_available(pinned);
        return BufferResource::make(std::move(settings));
    }();
    return br;
}

bool needs_gpu(benchmark::State& state) {
    if (Device::current().kind() == DeviceKind::cpu) {
        state.SkipWithError("the compute device is the CPU");
        return false;
    }
    return true;
}

// A host table of one chunk, repeated on the device until it has `bytes`.
Table on_device(Table const& chunk, std::size_t bytes, Stream stream) {
    std::vector<PackedData> parts;
    for (std::size_t done = 0; done < bytes; done += chunk.byte_size()) {
        parts.push_back(pack(chunk, *resource()));
    }
    auto table = unpack_and_concat_on_device(std::move(parts), *resource(), stream, AllowOverbooking::yes);
    resource()->device().synchronize(stream);
    return table;
}

struct HostColumns {
    std::vector<std::vector<std::byte>> memory;
    std::vector<Field> fields;
    std::vector<Column> columns;
    std::int64_t rows;
    std::mt19937_64 random{1};

    std::byte* add(std::string name, std::string format, std::size_t bytes) {
        fields.emplace_back(std::move(name), std::move(format));
        columns.emplace_back();
        columns.back().length = rows;
        return memory.emplace_back(bytes).data();
    }
    void add_fixed(std::string name, std::string format, std::size_t width) {
        auto* const values = add(std::move(name), std::move(format), static_cast<std::size_t>(rows) * width);
        columns.back().values = values;
        for (std::size_t i = 0; i < static_cast<std::size_t>(rows) * width / 4; ++i) {
            auto const value = static_cast<std::uint32_t>(random());
            std::memcpy(values + i * 4, &value, 4);
        }
    }
    void add_text(std::string name, std::size_t shortest, std::size_t longest) {
        auto* const offsets = reinterpret_cast<std::int32_t*>(
            add(std::move(name), "u", (static_cast<std::size_t>(rows) + 1) * 4));
        columns.back().offsets = offsets;
        offsets[0] = 0;
        for (std::int64_t i = 0; i < rows; ++i) {
            offsets[i + 1] =
                offsets[i] + static_cast<std::int32_t>(shortest + random() % (longest - shortest + 1));
        }
        auto& data = memory.emplace_back(static_cast<std::size_t>(offsets[rows]));
        for (std::size_t i = 0; i < data.size(); ++i) {
            data[i] = static_cast<std::byte>('a' + i % 26);
        }
        columns.back().data = data;
    }
};

Table finish(std::shared_ptr<HostColumns> const& host) {
    return Table{std::make_shared<Schema const>(host->fields), host->columns, host->rows, host};
}

// Four columns of 8 bytes.
Table rows_of_32_bytes() {
    auto const host = std::make_shared<HostColumns>();
    host->rows = 1 << 20;
    for (auto const* const name : {"a", "b", "c", "d"}) {
        host->add_fixed(name, "l", 8);
    }
    return finish(host);
}

// The types and widths of TPC-H's lineitem.
Table lineitem() {
    auto const host = std::make_shared<HostColumns>();
    host->rows = 1 << 18;
    for (auto const* const name : {"l_orderkey", "l_partkey", "l_suppkey"}) {
        host->add_fixed(name, "l", 8);
    }
    host->add_fixed("l_linenumber", "i", 4);
    for (auto const* const name : {"l_quantity", "l_extendedprice", "l_discount", "l_tax"}) {
        host->add_fixed(name, "g", 8);
    }
    host->add_text("l_returnflag", 1, 1);
    host->add_text("l_linestatus", 1, 1);
    for (auto const* const name : {"l_shipdate", "l_commitdate", "l_receiptdate"}) {
        host->add_fixed(name, "tdD", 4);
    }
    host->add_text("l_shipinstruct", 4, 17);
    host->add_text("l_shipmode", 3, 7);
    host->add_text("l_comment", 10, 43);
    return finish(host);
}

void report(benchmark::State& state, std::size_t bytes) {
    state.SetBytesProcessed(state.iterations() * 2 * static_cast<std::int64_t>(bytes));
}

void partition(benchmark::State& state, Table (*make)()) {
    if (!needs_gpu(state)) {
        return;
    }
    auto& br = *resource();
    auto const stream = br.next_stream();
    auto const table = on_device(make(), static_cast<std::size_t>(state.range(0)) << 20U, stream);
    auto const once = [&] {
        auto parts = partition_and_pack(table, std::vector{0}, static_cast<int>(state.range(1)), br);
        br.device().synchronize(stream);
        return parts;
    };
    (void)once();
    for (auto _ : state) {
        auto parts = once();
        benchmark::DoNotOptimize(parts);
    }
    report(state, table.byte_size());
}

void unpack_and_concat(benchmark::State& state, Table (*make)()) {
    if (!needs_gpu(state)) {
        return;
    }
    auto& br = *resource();
    auto const stream = br.next_stream();
    auto const table = on_device(make(), static_cast<std::size_t>(state.range(0)) << 20U, stream);
    for (auto _ : state) {
        state.PauseTiming();
        auto parts = partition_and_pack(table, std::vector{0}, static_cast<int>(state.range(1)), br);
        br.device().synchronize(stream);
        state.ResumeTiming();
        auto const joined = unpack_and_concat_on_device(std::move(parts), br, stream, AllowOverbooking::yes);
        br.device().synchronize(stream);
    }
    report(state, table.byte_size());
}

// What there is to reach: the driver's own copy.
void device_copy(benchmark::State& state) {
    if (!needs_gpu(state)) {
        return;
    }
    auto& br = *resource();
    auto const stream = br.next_stream();
    auto const bytes = static_cast<std::size_t>(state.range(0)) << 20U;
    auto const from = br.allocate(MemoryType::DEVICE, bytes, stream);
    auto const to = br.allocate(MemoryType::DEVICE, bytes, stream);
    for (auto _ : state) {
        to->write([&](std::byte* data, Stream on) { br.device().copy(data, from->data(), bytes, on); });
        br.device().synchronize(stream);
    }
    report(state, bytes);
}

// Pieces of `range(1)` bytes, each `range(2)` bytes off an aligned address.
void gather_copy(benchmark::State& state) {
    if (!needs_gpu(state)) {
        return;
    }
    auto& br = *resource();
    auto const stream = br.next_stream();
    auto const bytes = static_cast<std::size_t>(state.range(0)) << 20U;
    auto const piece = static_cast<std::size_t>(state.range(1));
    auto const off = static_cast<std::size_t>(state.range(2));
    auto const from = br.allocate(MemoryType::DEVICE, bytes, stream);
    auto const to = br.allocate(MemoryType::DEVICE, bytes, stream);
    for (auto _ : state) {
        to->write([&](std::byte* data, Stream on) {
            std::vector<CopyPiece> pieces;
            for (std::size_t at = 0; at + piece <= bytes; at += piece) {
                pieces.push_back({from->data() + at + off, data + at, piece - off});
            }
            gather_copy_cuda(pieces, on);
        });
        br.device().synchronize(stream);
    }
    report(state, bytes);
}

void sizes(benchmark::internal::Benchmark* benchmark) {
    benchmark->Args({3072, 2})->Args({3072, 32})->Args({3072, 1024})->Args({76, 32})->UseRealTime();
    benchmark->Unit(benchmark::kMicrosecond);
}

BENCHMARK(device_copy)->Arg(3072)->Arg(76)->UseRealTime()->Unit(benchmark::kMicrosecond);
BENCHMARK(gather_copy)
    ->Args({3072, 512 << 20, 0})
    ->Args({3072, 1 << 20, 0})
    ->Args({3072, 64 << 10, 0})
    ->Args({3072, 64 << 10, 5})
    ->Args({3072, 64 << 10, 4})
    ->Args({64, 1 << 10, 0})
    ->UseRealTime()
    ->Unit(benchmark::kMicrosecond);
BENCHMARK_CAPTURE(partition, rows_of_32_bytes, rows_of_32_bytes)->Apply(sizes);
BENCHMARK_CAPTURE(partition, lineitem, lineitem)->Apply(sizes);
BENCHMARK_CAPTURE(unpack_and_concat, rows_of_32_bytes, rows_of_32_bytes)->Apply(sizes);
BENCHMARK_CAPTURE(unpack_and_concat, lineitem, lineitem)->Apply(sizes);

}  // namespace
