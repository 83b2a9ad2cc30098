#include <algorithm>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include <rapidsmpf/coll/shuffler.hpp>
#include <rapidsmpf/table/partition.hpp>

#include "cases.hpp"
#include "rows.hpp"

namespace rapidsmpf::bench {

namespace {

constexpr OpId op = 10;
constexpr std::array key_columns{0};

using Pieces = std::unordered_map<coll::PartitionId, PackedData>;

// One batch of rows, cut; pieces without rows travel, too, as they do from an engine that knows nothing of them.
Pieces cut(
    Table const& batch, int partitions, BufferResource& br, std::vector<std::uint32_t> const& placement) {
    Pieces pieces;
    auto packed = partition_and_pack(batch, key_columns, partitions, br, 0, placement);
    for (std::size_t p = 0; p < packed.size(); ++p) {
        pieces.emplace(static_cast<coll::PartitionId>(p), std::move(packed[p]));
    }
    return pieces;
}

class Cell {
  public:
    Cell(Job& job, BufferResource& br, Table const& rows, std::size_t chunk, std::size_t per_rank)
        : job_{job}, br_{br}, partitions_{static_cast<std::uint32_t>(per_rank * job.nranks())} {
        auto const batch = static_cast<std::int64_t>(std::max(chunk / row_bytes, std::size_t{1}));
        for (std::int64_t first = 0; first < rows.num_rows(); first += batch) {
            batches_.push_back(rows.slice(first, std::min(batch, rows.num_rows() - first)));
        }
        // Partitions of one rank lie one after the other.
        for (Rank rank = 0; rank < job.comm()->nranks(); ++rank) {
            for (std::uint32_t p = 0; p < partitions_; ++p) {
                if (coll::partition_owner(
                        p, partitions_, job.comm()->nranks(), coll::PartitionAssignment::round_robin)
                    == rank) {
                    placement_.push_back(p);
                }
            }
        }
    }

    // Partition and pack, shuffle, unpack.
    Taken end_to_end(std::vector<Table>& out) {
        return job_.measure([&] {
            auto shuffler = open();
            for (auto const& batch : batches_) {
                shuffler->insert(cut(batch, static_cast<int>(partitions_), br_, placement_));
            }
            shuffler->insert_finished();
            for (std::size_t i = 0; i < shuffler->local_partitions().size(); ++i) {
                auto parts = shuffler->extract(shuffler->wait_any());
                out.push_back(
                    unpack_and_concat(std::move(parts), br_, ValidateData::bounds, AllowOverbooking::yes));
            }
        });
    }

    // The shuffle alone, of pieces that are there.
    Taken exchange_alone(std::vector<std::vector<PackedData>>& out) {
        std::vector<Pieces> pieces;
        for (auto const& batch : batches_) {
            pieces.push_back(cut(batch, static_cast<int>(partitions_), br_, placement_));
        }
        return job_.measure([&] {
            auto shuffler = open();
            for (auto& piece : pieces) {
                shuffler->insert(std::move(piece));
            }
            shuffler->insert_finished();
            for (std::size_t i = 0; i < shuffler->local_partitions().size(); ++i) {
                out.push_back(shuffler->extract(shuffler->wait_any()));
            }
        });
    }

  private:
    [[nodiscard]] std::unique_ptr<coll::Shuffler> open() const {
        return std::make_unique<coll::Shuffler>(
            job_.comm(), op, partitions_, br_.shared_from_this(), coll::PartitionAssignment::round_robin,
            job_.settings());
    }

    Job& job_;
    BufferResource& br_;
    std::uint32_t partitions_;
    std::vector<Table> batches_;
    std::vector<std::uint32_t> placement_;
};

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
            // Fewer rows where they would be cut into very many pieces.
            auto const batches = std::max(most_pieces / (per_rank * job.nranks()), std::size_t{1});
            auto const num_rows = std::min(bytes, batches * size) / row_bytes;
            auto const rows = all_rows.slice(0, static_cast<std::int64_t>(num_rows));
            RowCheck sent;
            sent.add(rows);
            Cell cell{job, *br, rows, size, per_rank};
            Series end_to_end;
            Series exchange;
            Series memcpy;
            for (int round = -warm_up; round < repeats; ++round) {
                auto const copied = job.measure([&] { copy.run(); });
                std::vector<Table> out;
                auto const whole = cell.end_to_end(out);
                RowCheck came;
                for (auto const& table : out) {
                    came.add(table);
                }
                job.expect_equal_sums(sent.values(), came.values(), "table, end to end");
                out.clear();
                std::vector<std::vector<PackedData>> parts;
                auto const alone = cell.exchange_alone(parts);
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
