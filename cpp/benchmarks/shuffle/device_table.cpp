// A shuffle from tables on GPUs to tables on GPUs: partition and pack, exchange, unpack and concatenate.
#include <algorithm>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <rmm/mr/per_device_resource.hpp>
#include <rmm/mr/pool_memory_resource.hpp>

#include <rapidsmpf/core/statistics.hpp>
#include <rapidsmpf/memory/pinned_memory_resource.hpp>
#include <rapidsmpf/memory/rmm_resource.hpp>

#include "cases.hpp"
#include "rows.hpp"
#include "table_shuffle.hpp"

namespace rapidsmpf::bench {

namespace {

// The table's columns in the device's memory.
Table to_device(Table const& rows, BufferResource& br) {
    auto& device = br.device();
    auto const stream = device.next_stream();
    auto buffers = std::make_shared<std::vector<std::unique_ptr<Buffer>>>();
    std::vector<Column> columns;
    for (auto const& column : rows.columns()) {
        auto const bytes = static_cast<std::size_t>(rows.num_rows()) * 8;
        auto buffer = br.allocate(MemoryType::DEVICE, bytes);
        buffer->write([&](std::byte* to, Stream on) { device.copy(to, column.values, bytes, on); });
        buffer->synchronize();
        Column copy;
        copy.length = column.length;
        copy.values = buffer->data();
        columns.push_back(std::move(copy));
        buffers->push_back(std::move(buffer));
    }
    return Table{rows.schema(), std::move(columns), rows.num_rows(), buffers, TablePlace::gpu, stream};
}

// Back in host memory, to be looked at.
Table to_host(Table const& table, Device& device) {
    auto values = std::make_shared<std::vector<std::vector<std::byte>>>();
    std::vector<Column> columns;
    device.synchronize(table.stream());
    for (auto const& column : table.columns()) {
        auto& bytes = values->emplace_back(static_cast<std::size_t>(table.num_rows()) * 8);
        device.copy(bytes.data(), column.values + column.offset * 8, bytes.size(), table.stream());
        Column copy;
        copy.length = table.num_rows();
        copy.values = bytes.data();
        columns.push_back(std::move(copy));
    }
    device.synchronize(table.stream());
    return Table{table.schema(), std::move(columns), table.num_rows(), values};
}

struct Cut {
    std::size_t chunks;
    std::size_t partitions;  // of each rank
};

// Each on a stream of its own, as chunks come from an engine: so the next is counted while one is written.
std::vector<Table> batches_of(Table const& rows, std::size_t count, Device& device) {
    auto const chunks = static_cast<std::int64_t>(count);
    std::vector<Table> batches;
    for (std::int64_t i = 0; i < chunks; ++i) {
        auto const first = rows.num_rows() * i / chunks;
        auto const batch = rows.slice(first, rows.num_rows() * (i + 1) / chunks - first);
        batches.emplace_back(
            batch.schema(), batch.columns(), batch.num_rows(), batch.owner(), batch.place(),
            device.next_stream());
    }
    return batches;
}

// "1x1,10x16": chunks a rank, partitions a rank.
std::vector<Cut> read_cuts(std::string const& text) {
    std::vector<Cut> cuts;
    for (std::size_t at = 0; at < text.size();) {
        auto const end = std::min(text.find(',', at), text.size());
        auto const cross = text.find('x', at);
        if (cross == std::string::npos || cross >= end) {
            throw std::invalid_argument{
                "--cuts wants something like 1x1,10x16: chunks and partitions of a rank"};
        }
        cuts.push_back(
            {std::stoul(text.substr(at, cross - at)), std::stoul(text.substr(cross + 1, end - cross - 1))});
        at = end + 1;
    }
    return cuts;
}

}  // namespace

void device_table(Job& job, Arguments const& arguments) {
    auto const cuts = read_cuts(arguments.text("cuts", "1x1,10x16,40x16"));
    auto const bytes = arguments.size("bytes", "3200000000B");
    auto const warm_up = static_cast<int>(arguments.size("warmup", "2"));
    auto const repeats = static_cast<int>(arguments.size("repeats", "7"));
    bool const tells_statistics = arguments.text("statistics", "no") == "yes";
    arguments.check_all_used();
    auto& device = Device::current();
    if (device.kind() != DeviceKind::cuda) {
        throw std::runtime_error{"this case is for GPUs, and here is none"};
    }
    // As users have it: a pool, so that an allocation costs a microsecond.
    rmm::mr::pool_memory_resource pool{
        rmm::mr::get_current_device_resource_ref(), (bytes * 5 + 255) / 256 * 256};
    auto const statistics =
        std::make_shared<Statistics>(tells_statistics ? Statistics::Enabled::yes : Statistics::Enabled::no);
    BufferResource::Settings settings;
    settings.statistics = statistics;
    settings.device_mr = std::make_shared<RmmResource>(pool);
    settings.pinned_mr =
        PinnedMemoryResource::make({.numa_node = {}, .initial_pool_size = std::size_t{64} << 20U});
    auto const br = BufferResource::make(std::move(settings));
    auto const host_rows =
        make_rows(static_cast<std::uint64_t>(job.rank()), static_cast<std::int64_t>(bytes / row_bytes));
    RowCheck sent;
    sent.add(host_rows);
    auto const rows = to_device(host_rows, *br);
    auto const target = br->allocate(MemoryType::DEVICE, bytes);
    auto const source = br->allocate(MemoryType::DEVICE, bytes);
    for (auto const& cut : cuts) {
        TableShuffle shuffle{job, *br, batches_of(rows, cut.chunks, device), cut.partitions};
        Series copy;
        Series partition;
        Series exchange;
        Series whole;
        for (int round = -warm_up; round < repeats; ++round) {
            auto const copied = job.measure([&] {
                target->write(
                    [&](std::byte* to, Stream stream) { device.copy(to, source->data(), bytes, stream); });
                target->synchronize();
            });
            auto const partitioned = shuffle.partition_alone();
            std::vector<std::vector<PackedData>> parts;
            auto const exchanged = shuffle.exchange_alone(parts);
            parts.clear();
            std::vector<Table> out;
            auto const taken = shuffle.end_to_end(out, ValidateData::none);
            if (round == -warm_up) {
                RowCheck came;
                for (auto const& table : out) {
                    came.add(to_host(table, device));
                }
                job.expect_equal_sums(sent.values(), came.values(), "device table, end to end");
            }
            if (round >= 0) {
                copy.add(copied);
                partition.add(partitioned);
                exchange.add(exchanged);
                whole.add(taken);
            }
        }
        Record record;
        record.text("case", "device_table");
        record.text("device", device.name());
        record.number("ranks", std::uint64_t{job.nranks()});
        record.number("chunks_per_rank", std::uint64_t{cut.chunks});
        record.number("partitions_per_rank", std::uint64_t{cut.partitions});
        record.number("bytes_per_rank", std::uint64_t{bytes});
        record.series("device_copy", copy);
        record.series("partition", partition);
        record.series("exchange", exchange);
        record.series("end_to_end", whole);
        job.write(record);
    }
    if (tells_statistics && job.rank() == 0) {
        std::cerr << statistics->report() << std::endl;
    }
}

}  // namespace rapidsmpf::bench
