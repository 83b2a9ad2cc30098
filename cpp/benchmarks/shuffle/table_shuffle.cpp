#include "table_shuffle.hpp"

#include <array>
#include <utility>

namespace rapidsmpf::bench {

namespace {

constexpr OpId op = 10;
constexpr std::array key_columns{0};

}  // namespace

TableShuffle::TableShuffle(Job& job, BufferResource& br, std::vector<Table> batches, std::size_t per_rank)
    : job_{job},
      br_{br},
      partitions_{static_cast<std::uint32_t>(per_rank * job.nranks())},
      batches_{std::move(batches)} {
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

Taken TableShuffle::end_to_end(std::vector<Table>& out, ValidateData validate) {
    return job_.measure([&] {
        auto shuffler = open();
        for (auto const& batch : batches_) {
            shuffler->insert(cut(batch));
        }
        shuffler->insert_finished();
        for (std::size_t i = 0; i < shuffler->local_partitions().size(); ++i) {
            auto parts = shuffler->extract(shuffler->wait_any());
            out.push_back(unpack_and_concat(std::move(parts), br_, validate, AllowOverbooking::yes));
        }
        for (auto const& table : out) {
            if (table.place() == TablePlace::gpu) {
                br_.device().synchronize(table.stream());
            }
        }
    });
}

Taken TableShuffle::partition_alone() {
    std::vector<Pieces> pieces;
    return job_.measure([&] { pieces = cut_all(); });
}

Taken TableShuffle::exchange_alone(std::vector<std::vector<PackedData>>& out) {
    auto pieces = cut_all();
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

TableShuffle::Pieces TableShuffle::cut(Table const& batch) {
    Pieces pieces;
    auto packed = partition_and_pack(batch, key_columns, static_cast<int>(partitions_), br_, 0, placement_);
    for (std::size_t p = 0; p < packed.size(); ++p) {
        pieces.emplace_back(static_cast<coll::PartitionId>(p), std::move(packed[p]));
    }
    return pieces;
}

std::vector<TableShuffle::Pieces> TableShuffle::cut_all() {
    std::vector<Pieces> all;
    for (auto const& batch : batches_) {
        all.push_back(cut(batch));
    }
    for (auto const& pieces : all) {
        for (auto const& [partition, piece] : pieces) {
            piece.data->synchronize();
        }
    }
    return all;
}

std::unique_ptr<coll::Shuffler> TableShuffle::open() const {
    return std::make_unique<coll::Shuffler>(
        job_.comm(), op, partitions_, br_.shared_from_this(), coll::PartitionAssignment::round_robin,
        job_.settings());
}

}  // namespace rapidsmpf::bench
