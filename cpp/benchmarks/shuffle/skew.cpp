#include <algorithm>
#include <array>
#include <memory>
#include <utility>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/core/statistics.hpp>
#include <rapidsmpf/table/partition.hpp>

#include "cases.hpp"
#include "rows.hpp"

namespace rapidsmpf::bench {

namespace {
constexpr OpId op = 10;
constexpr std::array key_columns{0};
}  // namespace

void skew(Job& job, Arguments const& arguments) {
    auto const bytes = arguments.size("bytes", "4GiB");
    auto const limit = arguments.size("limit", "512MiB");
    auto const partitions = arguments.size("partitions", "64");
    auto const batch_bytes = arguments.size("batch", "8MiB");
    arguments.check_all_used();

    auto const statistics = std::make_shared<Statistics>();
    auto settings = BufferResource::settings_from_options(job.options(), statistics);
    settings.limits[0] = static_cast<std::int64_t>(limit);
    auto const br = BufferResource::make(std::move(settings));
    auto const nranks = static_cast<coll::PartitionId>(job.nranks());
    auto const share = bytes / job.nranks();
    RowCheck sent;
    RowCheck came;
    auto const base = resident();
    reset_peak_resident();
    // As the library measures it: without what a sender has mapped of the receiver's memory.
    std::int64_t measured = 0;
    auto const look = [&] { measured = std::max(measured, br->device().used_memory()); };
    Series series;
    series.add(job.measure([&] {
        coll::Shuffler shuffler{
            job.comm(),
            op,
            static_cast<coll::PartitionId>(partitions) * nranks,
            br,
            coll::PartitionAssignment::round_robin,
            job.settings()};
        std::uint64_t number = 0;
        for (std::size_t done = 0; done < share; done += batch_bytes) {
            auto const rows = make_rows(
                (static_cast<std::uint64_t>(job.rank()) << 20U) + number++,
                static_cast<std::int64_t>(batch_bytes / row_bytes));
            sent.add(rows);
            std::vector<std::pair<coll::PartitionId, PackedData>> pieces;
            auto packed = partition_and_pack(rows, key_columns, static_cast<int>(partitions), *br);
            for (std::size_t p = 0; p < packed.size(); ++p) {
                // Partition p * nranks is one of rank 0.
                pieces.emplace_back(static_cast<coll::PartitionId>(p) * nranks, std::move(packed[p]));
            }
            look();
            shuffler.insert(std::move(pieces));
            look();
        }
        shuffler.insert_finished();
        for (auto const partition : shuffler.local_partitions()) {
            shuffler.wait_on(partition);
            auto parts = shuffler.extract(partition);
            look();
            if (!parts.empty()) {
                came.add(
                    unpack_and_concat(std::move(parts), *br, ValidateData::bounds, AllowOverbooking::yes));
            }
        }
    }));
    job.expect_equal_sums(sent.values(), came.values(), "skew");
    Record record;
    record.text("case", "skew");
    record.number("ranks", std::uint64_t{job.nranks()});
    record.number("bytes", std::uint64_t{share * job.nranks()});
    record.number("limit", std::uint64_t{limit});
    record.series("all", series);
    record.numbers("base_resident", job.of_all_ranks(base));
    record.numbers("peak_measured", job.of_all_ranks(static_cast<std::uint64_t>(measured)));
    record.numbers("peak_resident", job.of_all_ranks(peak_resident()));
    auto const values = statistics->snapshot();
    auto const found = values.entries().find("spill-bytes-device-to-disk");
    auto const spilled =
        found == values.entries().end() ? 0 : static_cast<std::uint64_t>(found->second.stat.value);
    record.numbers("spilled", job.of_all_ranks(spilled));
    job.write(record);
}

}  // namespace rapidsmpf::bench
