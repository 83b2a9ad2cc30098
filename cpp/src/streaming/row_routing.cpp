#include <rapidsmpf/streaming/row_routing.hpp>

#include <limits>
#include <numeric>
#include <span>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/detail/narrow.hpp>
#include <rapidsmpf/table/packed.hpp>
#include <rapidsmpf/table/partition.hpp>

namespace rapidsmpf::streaming {

namespace {

RowRouting::Packed with_rows(std::vector<PackedData> parts) {
    RowRouting::Packed packed;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        if (packed_info(parts[i].metadata).num_rows > 0) {
            packed.emplace_back(static_cast<coll::PartitionId>(i), std::move(parts[i]));
        }
    }
    return packed;
}

bool is_packed_narrow(TableBatch const& batch, RowForm form) {
    return form == RowForm::narrow && batch.tables().front().place() == TablePlace::host;
}

// `targets_of` gives the partition of each row of a table. It is asked before rows are narrow: equal keys have equal hashes
// only while they have the same type.
template <typename TargetsOf>
RowRouting::Packed pack_narrow(
    TableBatch const& batch, int num_partitions, BufferResource& br, std::span<std::uint32_t const> placement,
    TargetsOf const& targets_of) {
    std::vector<std::uint32_t> targets;
    targets.reserve(static_cast<std::size_t>(batch.num_rows()));
    for (auto const& table : batch.tables()) {
        auto const its = targets_of(table);
        targets.insert(targets.end(), its.begin(), its.end());
    }
    auto const rows = narrow(batch.tables(), br);
    return with_rows(partition_by_numbers_and_pack(rows, targets, num_partitions, br, placement));
}

}  // namespace

RowRouting::RowRouting(
    Kind kind, std::vector<std::string> columns, std::uint64_t seed, coll::PartitionId partition,
    RowForm form)
    : kind_{kind}, columns_{std::move(columns)}, seed_{seed}, partition_{partition}, form_{form} {}

RowRouting RowRouting::by_hash(std::vector<std::string> keys, std::uint64_t seed, RowForm form) {
    RAPIDSMPF_EXPECTS(
        !keys.empty(), "a shuffle by hash needs at least one key column", std::invalid_argument);
    return {Kind::hash, std::move(keys), seed, 0, form};
}

RowRouting RowRouting::by_column(std::string column, RowForm form) {
    return {Kind::column, {std::move(column)}, 0, 0, form};
}

RowRouting RowRouting::to_partition(coll::PartitionId partition) {
    return {Kind::partition, {}, 0, partition, RowForm::plain};
}

RowRouting::Packer RowRouting::bind(
    Schema const& schema, std::uint32_t num_partitions, std::vector<std::uint32_t> placement,
    std::shared_ptr<BufferResource> resource) const {
    RAPIDSMPF_EXPECTS(
        num_partitions > 0 && num_partitions <= static_cast<std::uint32_t>(std::numeric_limits<int>::max()),
        "the number of partitions must be positive and fit an int", std::invalid_argument);
    auto const count = static_cast<int>(num_partitions);
    switch (kind_) {
        case Kind::hash: {
            std::vector<int> keys;
            for (auto const& name : columns_) {
                keys.push_back(static_cast<int>(schema.index_of(name)));
            }
            return [keys = std::move(keys), count, placement = std::move(placement),
                    resource = std::move(resource), seed = seed_, form = form_](TableBatch const& batch) {
                if (is_packed_narrow(batch, form)) {
                    auto const targets = [&](Table const& table) {
                        return hash_partition_ids(table, keys, count, seed);
                    };
                    return pack_narrow(batch, count, *resource, placement, targets);
                }
                auto const table = batch.combine(*resource);
                return with_rows(partition_and_pack(table, keys, count, *resource, seed, placement));
            };
        }
        case Kind::column: {
            // partition_by_column_and_pack leaves the column of numbers out: give it a second one.
            std::vector<std::size_t> columns(schema.num_columns());
            std::iota(columns.begin(), columns.end(), std::size_t{0});
            columns.push_back(schema.index_of(columns_.front()));
            return [columns = std::move(columns), count, placement = std::move(placement),
                    resource = std::move(resource), form = form_](TableBatch const& batch) {
                if (is_packed_narrow(batch, form)) {
                    auto const targets = [&](Table const& table) {
                        return partition_column(table, static_cast<int>(columns.back()), count);
                    };
                    return pack_narrow(batch, count, *resource, placement, targets);
                }
                auto const widened = batch.combine(*resource).select(columns);
                auto const last = static_cast<int>(columns.size() - 1);
                return with_rows(partition_by_column_and_pack(widened, last, count, *resource, placement));
            };
        }
        case Kind::partition:
            RAPIDSMPF_EXPECTS(
                partition_ < num_partitions,
                "there is no partition " + std::to_string(partition_) + ": the shuffle has "
                    + std::to_string(num_partitions),
                std::out_of_range);
            return [partition = partition_, resource = std::move(resource)](TableBatch const& batch) {
                Packed packed;
                auto const table = batch.combine(*resource);
                if (table.num_rows() > 0) {
                    packed.emplace_back(partition, pack(table, *resource));
                }
                return packed;
            };
    }
    throw std::logic_error{"unknown kind of routing"};
}

}  // namespace rapidsmpf::streaming
