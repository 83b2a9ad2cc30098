#include <algorithm>
#include <utility>
#include <vector>

#include "cases.hpp"
#include "rows.hpp"
#include "table_shuffle.hpp"

namespace rapidsmpf::bench {

namespace {

std::vector<Table> batches_of(Table const& rows, std::size_t chunk) {
    auto const batch = static_cast<std::int64_t>(std::max(chunk / row_bytes, std::size_t{1}));
    std::vector<Table> batches;
    for (std::int64_t first = 0; first < rows.num_rows(); first += batch) {
        batches.push_back(rows.slice(first, std::min(batch, rows.num_rows() - first)));
    }
    return batches;
}

}  // namespace

void table(Job& job, Arguments const& arguments) {
    auto const sizes = arguments.sizes("chunks", "64KiB,256KiB,1MiB,8MiB,64MiB");
    auto const partitions = arguments.sizes("partitions", "1,10,100,1000");
    auto const bytes = arguments.size("bytes", "256MiB");
    auto const warm_up = static_cast<int>(arguments.size("warmup", "1"));
    auto const repeats = static_cast<int>(arguments.size("repeats", "5"));
    auto const most_pieces = arguments.size("pieces", "50000");
    arguments.check_all_used();
    auto const br = BufferResource::from_options(job.options());
    auto const all_rows =
        make_rows(static_cast<std::uint64_t>(job.rank()), static_cast<std::int64_t>(bytes / row_bytes));
    Memcpy copy{bytes};
    for (auto const per_rank : partitions) {
        for (auto const size : sizes) {
            // Fewer rows where the case would partition them into very many pieces.
            auto const batches = std::max(most_pieces / (per_rank * job.nranks()), std::size_t{1});
            auto const num_rows = std::min(bytes, batches * size) / row_bytes;
            auto const rows = all_rows.slice(0, static_cast<std::int64_t>(num_rows));
            RowCheck sent;
            sent.add(rows);
            TableShuffle shuffle{job, *br, batches_of(rows, size), per_rank};
            Series end_to_end;
            Series exchange;
            Series memcpy;
            for (int round = -warm_up; round < repeats; ++round) {
                auto const copied = job.measure([&] { copy.run(); });
                std::vector<Table> out;
                auto const whole = shuffle.end_to_end(out, ValidateData::bounds);
                RowCheck came;
                for (auto const& table : out) {
                    came.add(table);
                }
                job.expect_equal_sums(sent.values(), came.values(), "table, end to end");
                out.clear();
                std::vector<std::vector<PackedData>> parts;
                auto const alone = shuffle.exchange_alone(parts);
                RowCheck again;
                for (auto& part : parts) {
                    again.add(
                        unpack_and_concat(std::move(part), *br, ValidateData::bounds, AllowOverbooking::yes));
                }
                job.expect_equal_sums(sent.values(), again.values(), "table, exchange");
                if (round >= 0) {
                    memcpy.add(copied);
                    end_to_end.add(whole);
                    exchange.add(alone);
                }
            }
            job.write(
                CellRecord{
                    "table",
                    size,
                    per_rank,
                    num_rows * row_bytes * job.nranks(),
                    bytes * job.nranks(),
                    {{"end_to_end", end_to_end}, {"exchange", exchange}, {"memcpy", memcpy}}});
        }
    }
}

}  // namespace rapidsmpf::bench
