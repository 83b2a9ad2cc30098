#include "compute/join_table.hpp"

#include <new>
#include <stdexcept>
#include <utility>
#include <variant>

#include <cudf/reduction/distinct_count.hpp>

namespace rapidsmpf::compute {

namespace {

constexpr auto nullify = cudf::out_of_bounds_policy::NULLIFY;
constexpr auto dont_check = cudf::out_of_bounds_policy::DONT_CHECK;

}  // namespace

JoinTable::JoinTable(
    TablePtr rows, std::vector<std::optional<std::int32_t>> places, std::vector<std::int32_t> const& keys,
    bool nulls_equal, Ways ways, Work& work)
    : rows_{std::move(rows)}, places_{std::move(places)} {
    if (rows_->num_rows() == 0) {
        return;  // what a probe of nothing gives needs no table
    }
    std::vector<std::int32_t> columns;
    for (auto const key : keys) {
        columns.push_back(places_.at(static_cast<std::size_t>(key)).value());
    }
    auto const view = select(rows_->view(), columns);
    auto const equality = nulls_equal ? cudf::null_equality::EQUAL : cudf::null_equality::UNEQUAL;
    if (ways.matches) {
        // Counting them costs as much as building the table, and probing a table of distinct keys half as much as one of others.
        if (cudf::distinct_count(view, equality, work.stream()) == rows_->num_rows()) {
            distinct_ =
                std::make_unique<cudf::distinct_hash_join>(view, equality, 0.5, work.stream(), work.mr());
        } else {
            hash_ = std::make_unique<cudf::hash_join>(view, equality, work.stream(), work.mr());
        }
    }
    if (ways.filters) {
        filter_ = std::make_unique<cudf::filtered_join>(view, equality, work.stream(), work.mr());
    }
    work.synchronize();
}

TablePtr JoinTable::probe_empty(
    TablePtr chunk, JoinKind kind, cudf::table_view const& payload, Work& work) const {
    switch (kind) {
        case JoinKind::anti:
            return chunk;
        case JoinKind::semi:
            return cudf::empty_like(chunk->view());
        case JoinKind::inner:
            return join_columns(cudf::empty_like(chunk->view()), cudf::empty_like(payload));
        case JoinKind::left:
            break;
        default:
            throw std::logic_error{"a chunk cannot be probed by a full or cross join"};
    }
    std::vector<ColumnPtr> nulls;
    for (auto const& column : payload) {
        nulls.push_back(null_column(column, chunk->num_rows(), work));
    }
    return join_columns(std::move(chunk), std::make_unique<cudf::table>(std::move(nulls)));
}

JoinTable::Pairs JoinTable::match(cudf::table_view const& keys, JoinKind kind, Work& work) const {
    Pairs pairs;
    if (kind == JoinKind::inner) {
        std::tie(pairs.left, pairs.right) =
            distinct_ ? distinct_->inner_join(keys, work.stream(), work.mr())
                      : hash_->inner_join(keys, std::nullopt, work.stream(), work.mr());
    } else if (distinct_) {
        pairs.right = distinct_->left_join(keys, work.stream(), work.mr());
    } else {
        std::tie(pairs.left, pairs.right) = hash_->left_join(keys, std::nullopt, work.stream(), work.mr());
    }
    return pairs;
}

TablePtr JoinTable::join_part(
    cudf::table_view const& chunk, JoinKind kind, std::vector<std::int32_t> const& keys,
    cudf::table_view const& payload, Work& work) const {
    auto const pairs = match(select(chunk, keys), kind, work);
    auto left = pairs.left ? gather_rows(chunk, as_column(*pairs.left), dont_check, work)
                           : std::make_unique<cudf::table>(chunk, work.stream(), work.mr());
    if (payload.num_columns() == 0) {
        return left;
    }
    auto const bounds = kind == JoinKind::left ? nullify : dont_check;
    return join_columns(std::move(left), gather_rows(payload, as_column(*pairs.right), bounds, work));
}

TablePtr JoinTable::probe(
    TablePtr chunk, JoinKind kind, std::vector<std::int32_t> const& keys,
    std::vector<std::int32_t> const& payload, Work& work) const {
    std::vector<cudf::column_view> columns;
    for (auto const column : payload) {
        columns.push_back(rows_->view().column(places_.at(static_cast<std::size_t>(column)).value()));
    }
    cudf::table_view const given{columns};
    if (rows_->num_rows() == 0) {
        return probe_empty(std::move(chunk), kind, given, work);
    }
    auto const view = chunk->view();
    if (chunk->num_rows() == 0) {
        return kind == JoinKind::inner || kind == JoinKind::left
                   ? join_columns(std::move(chunk), cudf::empty_like(given))
                   : std::move(chunk);
    }
    if (kind == JoinKind::semi || kind == JoinKind::anti) {
        auto const found = select(view, keys);
        auto const map = kind == JoinKind::semi ? filter_->semi_join(found, work.stream(), work.mr())
                                                : filter_->anti_join(found, work.stream(), work.mr());
        return gather_rows(view, as_column(*map), dont_check, work);
    }
    if (kind == JoinKind::left && distinct_) {
        // Every row stays once and where it is.
        auto const map = distinct_->left_join(select(view, keys), work.stream(), work.mr());
        auto right = gather_rows(given, as_column(*map), nullify, work);
        return join_columns(std::move(chunk), std::move(right));
    }
    return join_part(view, kind, keys, given, work);
}

}  // namespace rapidsmpf::compute
