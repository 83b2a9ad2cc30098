// What becomes of dictionaries (Polars' Categorical and Enum among them) when tables are cut and put together.
//
// Cutting: a dictionary much longer than the partitions would travel with each of them, so a partition then gets the
// values that occur in it, and new codes. Putting together: ranks number the same values differently, so values
// are looked up by content and codes renumbered, unless all dictionaries are the same. Dictionaries whose codes
// have an order of their own keep it: they travel whole, and may only be joined when one begins with the other.
#include <algorithm>
#include <cstring>
#include <limits>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <utility>

#include <rapidsmpf/core/error.hpp>

#include "table/host/hash.hpp"
#include "table/host/packer.hpp"
#include "table/host/row_hasher.hpp"

namespace rapidsmpf::detail {

namespace {

// Marks a row that is null among collected codes.
constexpr std::uint32_t null_code = UINT32_MAX;

bool same_values(Field const& field, Column const& a, Column const& b) {
    if (a.length != b.length) {
        return false;
    }
    if (a.values == b.values && a.offset == b.offset && a.offsets == b.offsets && a.children.empty()) {
        return true;
    }
    for (std::int64_t row = 0; row < a.length; ++row) {
        if (!same_value(field, a, row, b, row)) {
            return false;
        }
    }
    return true;
}

// The highest number of values that codes of this type can tell apart.
std::uint64_t max_values(Field const& field) {
    auto const is_signed = std::string_view{"csil"}.find(field.format()) != std::string_view::npos;
    auto const bits = field.width() * 8 - (is_signed ? 1 : 0);
    return bits >= 32 ? std::uint64_t{null_code} : std::uint64_t{1} << bits;
}

}  // namespace

Packer::DictionaryPlan& Packer::plan_of(std::size_t node) {
    return *std::find_if(
        dictionaries_.begin(), dictionaries_.end(), [node](auto const& plan) { return plan.node == node; });
}

bool Packer::start_dictionaries(Table const& table) {
    bool collects = false;
    for (auto& plan : dictionaries_) {
        auto const& column = column_of(plan.node, table);
        auto const length = column.dictionary->length;
        std::int64_t rows{0};
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            rows += pieces(plan.node)[p].rows;
        }
        // Per partition, a value costs at least as much as a few codes.
        auto const is_long = length > rows / static_cast<std::int64_t>(num_partitions_) / 8;
        plan.is_compacted = is_long && length > 0 && length < std::int64_t{null_code}
                            && !nodes_[plan.node].field->has_ordered_codes();
        if (!plan.is_compacted) {
            continue;
        }
        collects = true;
        plan.codes.resize(static_cast<std::size_t>(rows));
        std::size_t at{0};
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            plan.codes_at.push_back(at);
            at += static_cast<std::size_t>(pieces(plan.node)[p].rows);
        }
        for (auto node = static_cast<int>(plan.node); node >= 0;
             node = nodes_[static_cast<std::size_t>(node)].parent) {
            nodes_[static_cast<std::size_t>(node)].leads_to_compacted_codes = true;
        }
    }
    return collects;
}

template <typename Selection>
void Packer::collect_rows(Table const& table, Selection const& selection) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        walk(
            columns_[i], table.columns()[i], selection, 0,
            [this](auto node, auto const& column, auto const& rows) {
                if (!nodes_[node].leads_to_compacted_codes) {
                    return false;
                }
                if (nodes_[node].values != 0) {
                    this->collect_codes(node, column, rows);
                }
                return true;
            });
    }
}

void Packer::collect(Table const& table, IndexSelection const& selection) {
    collect_rows(table, selection);
}

void Packer::collect(Table const& table, RangeSelection const& selection) {
    collect_rows(table, selection);
}

template <typename Selection>
void Packer::collect_codes(std::size_t node, Column const& column, Selection const& selection) {
    auto& plan = plan_of(node);
    with_code_type(nodes_[node].field->width(), [&]<typename T>(T) {
        selection.for_each_run([&](std::size_t p, auto const& run) {
            auto at = plan.codes_at[p];
            run.for_each_row([&](std::int64_t row) {
                plan.codes[at++] =
                    column.is_valid(row)
                        ? static_cast<std::uint32_t>(load<T>(column.values, column.offset + row))
                        : null_code;
            });
            plan.codes_at[p] = at;
        });
    });
}

void Packer::finish_dictionaries(Table const& table) {
    for (auto& plan : dictionaries_) {
        auto const& values = column_of(plan.node, table).dictionary;
        if (plan.is_compacted) {
            compact_codes(plan, values);
        } else {
            DictionaryPlan::Values whole;
            whole.column = values;
            for (std::size_t p = 0; p < num_partitions_; ++p) {
                if (pieces(plan.node)[p].rows > 0) {
                    whole.list.begin_partition(p);
                    whole.list.push({0, values->length});
                }
            }
            plan.values.push_back(std::move(whole));
        }
        count_dictionary_values(plan);
    }
}

// Gives each partition the values that occur in it, in the order of their first use.
void Packer::compact_codes(DictionaryPlan& plan, std::shared_ptr<Column const> const& values) {
    DictionaryPlan::Values used;
    used.column = values;
    struct Seen {
        std::uint32_t partition{UINT32_MAX};  // the last one that the value occurred in
        std::uint32_t code{0};
    };
    std::vector<Seen> seen(static_cast<std::size_t>(values->length));
    std::size_t begin{0};
    for (std::size_t p = 0; p < num_partitions_; ++p) {
        auto const end = plan.codes_at[p];  // collecting has moved it there
        if (begin != end) {
            used.list.begin_partition(p);
        }
        std::uint32_t next{0};
        for (auto i = begin; i < end; ++i) {
            auto& code = plan.codes[i];
            if (code == null_code) {
                code = 0;
                continue;
            }
            auto& entry = seen[code];
            if (entry.partition != p) {
                entry = {static_cast<std::uint32_t>(p), next++};
                used.list.push({code, 1});
            }
            code = entry.code;
        }
        plan.codes_at[p] = begin;
        begin = end;
    }
    plan.values.push_back(std::move(used));
}

void Packer::unify_dictionaries(std::span<Table const* const> tables) {
    for (auto& plan : dictionaries_) {
        std::vector<std::shared_ptr<Column const>> sources;
        for (auto const* const table : tables) {
            sources.push_back(column_of(plan.node, *table).dictionary);
        }
        unify(plan, sources);
        count_dictionary_values(plan);
    }
}

void Packer::unify(DictionaryPlan& plan, std::vector<std::shared_ptr<Column const>> const& sources) {
    auto const& field = *nodes_[plan.node].field;
    auto const& values_field = *field.dictionary();
    auto const is_same = [&](auto const& source) { return same_values(values_field, *source, *sources[0]); };
    if (std::all_of(sources.begin(), sources.end(), is_same)) {
        DictionaryPlan::Values whole;
        whole.column = sources[0];
        whole.list.begin_partition(0);
        whole.list.push({0, sources[0]->length});
        plan.values.push_back(std::move(whole));
        return;
    }
    struct Entry {
        std::size_t source;
        std::int64_t row;
        std::uint32_t code;
    };
    std::unordered_multimap<std::uint64_t, Entry> known;
    std::uint64_t count{0};
    for (std::size_t s = 0; s < sources.size(); ++s) {
        auto const& column = *sources[s];
        DictionaryPlan::Values added;
        added.column = sources[s];
        added.list.begin_partition(0);
        std::vector<std::uint32_t> numbers(static_cast<std::size_t>(column.length));
        for (std::int64_t row = 0; row < column.length; ++row) {
            auto const hash = hash::finish(hash_value(values_field, column, row, hash::start(0)));
            auto const [first, last] = known.equal_range(hash);
            auto const found = std::find_if(first, last, [&](auto const& entry) {
                return same_value(values_field, column, row, *sources[entry.second.source], entry.second.row);
            });
            auto& number = numbers[static_cast<std::size_t>(row)];
            if (found != last) {
                number = found->second.code;
            } else {
                RAPIDSMPF_EXPECTS(
                    count < max_values(field),
                    "column '" + field.name() + "' (" + field.type_name()
                        + "): the dictionaries together have more " + "values than codes of "
                        + std::to_string(field.width()) + " bytes can number",
                    std::invalid_argument);
                number = static_cast<std::uint32_t>(count++);
                known.emplace(hash, Entry{s, row, number});
                added.list.push({row, 1});
            }
            RAPIDSMPF_EXPECTS(
                !field.has_ordered_codes() || number == static_cast<std::uint32_t>(row),
                "column '" + field.name()
                    + "' is an ordered dictionary whose categories differ between the tables, "
                    + "so that one order cannot hold for all; cast it to text first",
                std::invalid_argument);
        }
        plan.values.push_back(std::move(added));
        plan.renumbering.push_back(std::move(numbers));
    }
}

void Packer::count_dictionary_values(DictionaryPlan& plan) {
    auto const node = nodes_[plan.node].values;
    for (auto& values : plan.values) {
        values.selection = values.list.finish(num_partitions_);
        walk(node, *values.column, values.selection, 0, [this](auto n, auto const& column, auto const& rows) {
            this->count_node(n, column, rows);
            return true;
        });
        finish_source_node(node, *values.column);
    }
}

}  // namespace rapidsmpf::detail
