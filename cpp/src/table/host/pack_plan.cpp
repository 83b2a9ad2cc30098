#include "table/host/pack_plan.hpp"

#include <array>
#include <cstdint>
#include <utility>

#include "table/host/column_counts.hpp"
#include "table/host/pack_planner.hpp"

namespace rapidsmpf::detail {

namespace {

// A column of the table of which only the number of rows is needed: as many as the table has.
bool has_only_rows(PackNode const& node) {
    auto const layout = node.field->layout();
    return node.parent < 0 && (layout == Layout::fixed || layout == Layout::bits || layout == Layout::null);
}

std::vector<Field const*> fields_of(std::span<PackNode const> nodes) {
    std::vector<Field const*> fields;
    fields.reserve(nodes.size());
    for (auto const& node : nodes) {
        fields.push_back(node.field);
    }
    return fields;
}

}  // namespace

PackPlanner::PackPlanner(
    std::shared_ptr<Schema const> schema, std::size_t num_partitions, std::int64_t max_segment)
    : num_partitions_{num_partitions},
      plan_{std::move(schema), max_segment, {}, {}, PackedLayout{{}, 0}, {}, {}} {
    auto const& fields = plan_.schema->fields();
    plan_.columns.reserve(fields.size());
    plan_.nodes.reserve(fields.size());
    for (std::size_t i = 0; i < fields.size(); ++i) {
        plan_.columns.push_back(add_node(fields[i], -1, i));
    }
    plan_.layout = PackedLayout{fields_of(plan_.nodes), num_partitions_};
    plan_.rows.resize(num_partitions_, 0);
    source_bytes_.resize(plan_.nodes.size() * num_partitions_, 0);
}

std::size_t PackPlanner::add_node(Field const& field, int parent, std::size_t position) {
    auto const index = plan_.nodes.size();
    PackNode node{};
    node.field = &field;
    node.parent = parent;
    node.position = position;
    plan_.nodes.push_back(std::move(node));
    for (std::size_t i = 0; i < field.children().size(); ++i) {
        auto const child = add_node(field.children()[i], static_cast<int>(index), i);
        plan_.nodes[index].children.push_back(child);
    }
    if (field.dictionary() != nullptr) {
        auto const values = add_node(*field.dictionary(), static_cast<int>(index), 0);
        plan_.nodes[index].values = values;
        plan_.dictionaries.emplace_back();
        plan_.dictionaries.back().node = index;
    }
    return index;
}

Column const& PackPlanner::column_of(std::size_t node, Table const& table) const {
    auto const& entry = plan_.nodes[node];
    return entry.parent < 0
               ? table.columns()[entry.position]
               : column_of(static_cast<std::size_t>(entry.parent), table).children[entry.position];
}

template <typename Selection>
void PackPlanner::count(Table const& table, std::span<Selection const> blocks) {
    for (auto const& block : blocks) {
        block.for_each_run([&](std::size_t p, auto const& run) { plan_.rows[p] += run.num_rows(); });
        for (std::size_t i = 0; i < plan_.columns.size(); ++i) {
            walk_(
                plan_.nodes, plan_.columns[i], table.columns()[i], block,
                [this](auto node, auto const& column, auto const& rows) {
                    this->count_node(node, column, rows);
                    return true;
                });
        }
    }
    for (std::size_t i = 0; i < plan_.columns.size(); ++i) {
        finish_source(plan_.columns[i], table.columns()[i]);
    }
}

void PackPlanner::count_all(std::size_t node, Column const& column, RangeSelection const& selection) {
    walk_(plan_.nodes, node, column, selection, [this](auto n, auto const& of, auto const& rows) {
        this->count_node(n, of, rows);
        return true;
    });
    finish_source(node, column);
}

template <typename Selection>
void PackPlanner::count_node(std::size_t index, Column const& column, Selection const& selection) {
    auto& node = plan_.nodes[index];
    node.is_nullable |= column.validity != nullptr;
    if (has_only_rows(node)) {
        return;  // finish_source()
    }
    auto* const bytes = source_bytes_.data() + index * num_partitions_;
    auto const count = [&](auto const& count_bytes) {
        selection.for_each_run([&](std::size_t p, auto const& run) {
            counted(index, p).rows += run.num_rows();
            bytes[p] += count_bytes(run);
        });
    };
    switch (node.field->layout()) {
        case Layout::offsets32:
            count([&](auto const& run) { return count_text<std::int32_t>(column, run); });
            break;
        case Layout::offsets64:
            count([&](auto const& run) { return count_text<std::int64_t>(column, run); });
            break;
        case Layout::view:
            count([&](auto const& run) { return count_viewed(column, run); });
            break;
        default:
            count([](auto const&) { return 0; });
            break;
    }
}

void PackPlanner::finish_source(std::size_t index, Column const& column) {
    auto& node = plan_.nodes[index];
    auto const layout = node.field->layout();
    auto* const bytes = source_bytes_.data() + index * num_partitions_;
    if (has_only_rows(node)) {
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            counted(index, p).rows = plan_.rows[p];
        }
    } else if (layout == Layout::view) {
        std::int64_t total{0};
        bool can_move = !column.variadic.empty();
        for (auto const& buffer : column.variadic) {
            total += static_cast<std::int64_t>(buffer.size());
            can_move &= static_cast<std::int64_t>(buffer.size()) <= plan_.max_segment;
        }
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            // Views may share texts: then all buffers together are shorter than the texts one by one.
            auto const moves = can_move && bytes[p] > 0 && bytes[p] >= total;
            node.moves_buffers.push_back(moves ? 1 : 0);
            counted(index, p).bytes += moves ? total : bytes[p];
            bytes[p] = 0;
        }
    } else if (layout == Layout::offsets32 || layout == Layout::offsets64) {
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            counted(index, p).bytes += std::exchange(bytes[p], 0);
        }
    }
    for (std::size_t i = 0; i < node.children.size(); ++i) {
        finish_source(node.children[i], column.children[i]);
    }
}

PackPlan PackPlanner::finish() && {
    for (std::size_t n = 0; n < plan_.nodes.size(); ++n) {
        if (plan_.nodes[n].is_nullable) {
            for (std::size_t p = 0; p < num_partitions_; ++p) {
                counted(n, p).nulls = counted(n, p).rows;
            }
        }
    }
    return std::move(plan_);
}

namespace {

template <typename Selection>
PackPlan plan_for(Table const& table, std::size_t num_partitions, std::span<Selection const> blocks) {
    PackPlanner planner{table.schema(), num_partitions, max_view_segment};
    planner.count(table, blocks);
    planner.partition_dictionaries(table, blocks);
    return std::move(planner).finish();
}

}  // namespace

PackPlan plan_partitions(
    Table const& table, std::size_t num_partitions, std::span<IndexSelection const> blocks) {
    return plan_for(table, num_partitions, blocks);
}

PackPlan plan_partitions(
    Table const& table, std::size_t num_partitions, std::span<RangeSelection const> blocks) {
    return plan_for(table, num_partitions, blocks);
}

PackPlan plan_concat(
    std::shared_ptr<Schema const> schema, std::span<Table const* const> tables, std::int64_t max_segment) {
    PackPlanner planner{std::move(schema), 1, max_segment};
    for (auto const* const table : tables) {
        WholeTable const whole{*table};
        planner.count(*table, whole.blocks());
    }
    planner.unify_dictionaries(tables);
    return std::move(planner).finish();
}

}  // namespace rapidsmpf::detail
