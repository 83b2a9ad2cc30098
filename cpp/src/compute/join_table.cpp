#include "compute/join_table.hpp"

#include <algorithm>
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
    Chunk rows, std::vector<std::optional<std::int32_t>> places, std::vector<std::int32_t> const& keys,
    bool nulls_equal, Ways ways, Work& work)
    : places_{std::move(places)} {
    std::vector<std::int32_t> columns;
    for (auto const key : keys) {
        columns.push_back(places_.at(static_cast<std::size_t>(key)).value());
    }
    if (ways.codes && rows.rows->num_rows() > 0) {
        code_strings(rows, columns, work);
    }
    rows_ = std::move(rows.rows);
    coding_ = std::move(rows.coding);
    for (auto const column : columns) {
        key_codes_.push_back(codes_of(coding_, static_cast<std::size_t>(column)));
    }
    if (rows_->num_rows() == 0) {
        return;  // what a probe of nothing gives needs no table
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

// Columns of few rows, since what is joined with them may have many; of tables with more rows the keys, if they have few values.
void JoinTable::code_strings(Chunk& rows, std::vector<std::int32_t> const& keys, Work& work) {
    auto const count = static_cast<std::size_t>(rows.rows->num_rows());
    for (std::int32_t column = 0; column < rows.rows->num_columns(); ++column) {
        auto const place = static_cast<std::size_t>(column);
        auto const view = rows.rows->view().column(column);
        auto const is_key = std::find(keys.begin(), keys.end(), column) != keys.end();
        if (view.type().id() != cudf::type_id::STRING || (count > StringCodes::most_strings && !is_key)) {
            continue;
        }
        auto codes = std::make_shared<StringCodes>(count, work);
        if (auto coded = codes->code(view, work)) {
            replace_column(rows, place, std::move(coded), std::move(codes));
        }
    }
}

JoinTable::ChunkKeys JoinTable::keys_of(
    Chunk const& chunk, std::vector<std::int32_t> const& keys, Work& work) const {
    ChunkKeys found;
    std::vector<cudf::column_view> views;
    for (std::size_t i = 0; i < keys.size(); ++i) {
        auto const view = chunk.rows->view().column(keys[i]);
        auto const& codes = codes_of(chunk.coding, static_cast<std::size_t>(keys[i]));
        auto const& of_table = key_codes_[i];
        if (codes == of_table) {  // neither is coded, or both with the same codes
            views.push_back(view);
            continue;
        }
        ColumnPtr made;
        if (of_table == nullptr) {
            made = codes->decode(view, work);
        } else if (codes == nullptr) {
            made = of_table->find(view, work);
        } else {
            made = values_of_codes(of_table->find(codes->strings_for(view, work), work)->view(), view, work);
        }
        views.push_back(made->view());
        found.made.push_back(std::move(made));
    }
    found.view = cudf::table_view{views};
    return found;
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
    cudf::table_view const& chunk, JoinKind kind, cudf::table_view const& keys,
    cudf::table_view const& payload, Work& work) const {
    auto const pairs = match(keys, kind, work);
    auto left = pairs.left ? gather_rows(chunk, as_column(*pairs.left), dont_check, work)
                           : std::make_unique<cudf::table>(chunk, work.stream(), work.mr());
    if (payload.num_columns() == 0) {
        return left;
    }
    auto const bounds = kind == JoinKind::left ? nullify : dont_check;
    return join_columns(std::move(left), gather_rows(payload, as_column(*pairs.right), bounds, work));
}

TablePtr JoinTable::probe_rows(
    TablePtr chunk, cudf::table_view const& keys, JoinKind kind, cudf::table_view const& payload,
    Work& work) const {
    if (kind == JoinKind::semi || kind == JoinKind::anti) {
        auto const map = kind == JoinKind::semi ? filter_->semi_join(keys, work.stream(), work.mr())
                                                : filter_->anti_join(keys, work.stream(), work.mr());
        return gather_rows(chunk->view(), as_column(*map), dont_check, work);
    }
    if (kind == JoinKind::left && distinct_) {
        // Every row stays once and where it is.
        auto const map = distinct_->left_join(keys, work.stream(), work.mr());
        auto right = gather_rows(payload, as_column(*map), nullify, work);
        return join_columns(std::move(chunk), std::move(right));
    }
    return join_part(chunk->view(), kind, keys, payload, work);
}

Chunk JoinTable::probe(
    Chunk chunk, JoinKind kind, std::vector<std::int32_t> const& keys,
    std::vector<std::int32_t> const& payload, Work& work) const {
    auto const gives_payload = kind == JoinKind::inner || kind == JoinKind::left;
    auto const chunk_columns = static_cast<std::size_t>(chunk.rows->num_columns());
    Chunk result{nullptr, chunk.sequence, chunk.coding};
    std::vector<cudf::column_view> columns;
    for (std::size_t i = 0; i < payload.size(); ++i) {
        auto const place = places_.at(static_cast<std::size_t>(payload[i])).value();
        columns.push_back(rows_->view().column(place));
        if (gives_payload) {
            set_codes(result.coding, chunk_columns + i, codes_of(coding_, static_cast<std::size_t>(place)));
        }
    }
    cudf::table_view const given{columns};
    if (rows_->num_rows() == 0) {
        result.rows = probe_empty(std::move(chunk.rows), kind, given, work);
    } else if (chunk.rows->num_rows() == 0) {
        result.rows = gives_payload ? join_columns(std::move(chunk.rows), cudf::empty_like(given))
                                    : std::move(chunk.rows);
    } else {
        auto const chunk_keys = keys_of(chunk, keys, work);
        result.rows = probe_rows(std::move(chunk.rows), chunk_keys.view, kind, given, work);
    }
    return result;
}

}  // namespace rapidsmpf::compute
