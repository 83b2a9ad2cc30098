#include "compute/parts.hpp"

#include <utility>
#include <variant>

#include <cudf/partitioning.hpp>

namespace rapidsmpf::compute {

RowParts::RowParts(Context& context, int count) {
    for (int part = 0; part < count; ++part) {
        parts_.push_back(std::make_shared<HeldRows>(context));
    }
}

void RowParts::add(Chunk chunk, std::span<std::int32_t const> keys, Work& work) {
    auto const parts = static_cast<int>(parts_.size());
    auto const [cut, offsets] = cudf::hash_partition(
        chunk.rows->view(), std::vector<cudf::size_type>(keys.begin(), keys.end()), parts,
        cudf::hash_id::HASH_MURMUR3, cudf::DEFAULT_HASH_SEED, work.stream(), work.mr());
    chunk.rows.reset();
    for (std::size_t part = 0; part < parts_.size(); ++part) {
        auto const begin = offsets[part];
        auto const end = part + 1 < parts_.size() ? offsets[part + 1] : cut->num_rows();
        if (begin < end) {
            parts_[part]->add({copy_rows(cut->view(), begin, end - begin, work), chunk.sequence}, work);
        }
    }
}

JoinParts::JoinParts(
    RowParts rows, std::vector<DataType> types, std::vector<std::optional<std::int32_t>> places,
    std::vector<std::int32_t> keys, bool nulls_equal, JoinTable::Ways ways, std::string name)
    : rows_{std::move(rows)},
      types_{std::move(types)},
      places_{std::move(places)},
      keys_{std::move(keys)},
      nulls_equal_{nulls_equal},
      ways_{ways},
      name_{std::move(name)} {}

std::int64_t JoinParts::num_rows() const {
    std::int64_t rows{0};
    for (int part = 0; part < rows_.count(); ++part) {
        rows += rows_.part(part)->rows();
    }
    return rows;
}

std::int64_t JoinParts::num_bytes() const {
    std::int64_t bytes{0};
    for (int part = 0; part < rows_.count(); ++part) {
        bytes += rows_.part(part)->bytes();
    }
    return bytes;
}

std::shared_ptr<JoinTable const> JoinParts::build(int part, Work& work) const {
    auto& held = *rows_.part(part);
    std::vector<TablePtr> tables;
    for (std::size_t i = 0; i < held.size(); ++i) {
        tables.push_back(held.copy(i, 0, held.rows_of(i), work));
    }
    auto rows = tables.empty()
                    ? empty_table(types_)
                    : concatenate(std::move(tables), (name_ + ": the build side of a join").c_str(), work);
    return std::make_shared<JoinTable const>(
        Chunk{std::move(rows), 0, {}}, places_, keys_, nulls_equal_, ways_, work);
}

}  // namespace rapidsmpf::compute
