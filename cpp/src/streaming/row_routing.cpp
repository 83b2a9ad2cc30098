#include <rapidsmpf/streaming/row_routing.hpp>

#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>
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

}  // namespace

RowRouting::RowRouting(
    Kind kind, std::vector<std::string> columns, std::uint64_t seed, coll::PartitionId partition)
    : kind_{kind}, columns_{std::move(columns)}, seed_{seed}, partition_{partition} {}

RowRouting RowRouting::by_hash(std::vector<std::string> keys, std::uint64_t seed) {
    RAPIDSMPF_EXPECTS(
        !keys.empty(), "a shuffle by hash needs at least one key column", std::invalid_argument);
    return {Kind::hash, std::move(keys), seed, 0};
}

RowRouting RowRouting::by_column(std::string column) {
    return {Kind::column, {std::move(column)}, 0, 0};
}

RowRouting RowRouting::to_partition(coll::PartitionId partition) {
    return {Kind::partition, {}, 0, partition};
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
                    resource = std::move(resource), seed = seed_](Table const& table) {
                return with_rows(partition_and_pack(table, keys, count, *resource, seed, placement));
            };
        }
        case Kind::column: {
            // partition_by_column_and_pack leaves the column of numbers out: give it a second one.
            std::vector<std::size_t> columns(schema.num_columns());
            std::iota(columns.begin(), columns.end(), std::size_t{0});
            columns.push_back(schema.index_of(columns_.front()));
            return [columns = std::move(columns), count, placement = std::move(placement),
                    resource = std::move(resource)](Table const& table) {
                auto const widened = table.select(columns);
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
            return [partition = partition_, resource = std::move(resource)](Table const& table) {
                Packed packed;
                if (table.num_rows() > 0) {
                    packed.emplace_back(partition, pack(table, *resource));
                }
                return packed;
            };
    }
    throw std::logic_error{"unknown kind of routing"};
}

}  // namespace rapidsmpf::streaming
