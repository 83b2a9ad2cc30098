// What becomes of dictionaries (Polars' Categorical and Enum among them) when tables are partitioned and concatenated.
//
// Partitioning: a dictionary much longer than the partitions would travel with each of them, so a partition then gets the
// values that occur in it, and new codes. Concatenating: ranks number the same values differently, so values
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
#include "table/host/pack_planner.hpp"
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

DictionaryPlan& PackPlanner::dictionary_of(std::size_t node) {
    auto& all = plan_.dictionaries;
    return *std::find_if(all.begin(), all.end(), [node](auto const& entry) { return entry.node == node; });
}

bool PackPlanner::start_compaction(Table const& table) {
    bool collects = false;
    for (auto& dictionary : plan_.dictionaries) {
        auto const& column = column_of(dictionary.node, table);
        auto const length = column.dictionary->length;
        std::int64_t rows{0};
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            rows += counted(dictionary.node, p).rows;
        }
        // Per partition, a value costs at least as much as a few codes.
        auto const is_long = length > rows / static_cast<std::int64_t>(num_partitions_) / 8;
        dictionary.is_compacted = is_long && length > 0 && length < std::int64_t{null_code}
                                  && !plan_.nodes[dictionary.node].field->has_ordered_codes();
        if (!dictionary.is_compacted) {
            continue;
        }
        collects = true;
        dictionary.codes.resize(static_cast<std::size_t>(rows));
        std::size_t at{0};
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            dictionary.codes_at.push_back(at);
            at += static_cast<std::size_t>(counted(dictionary.node, p).rows);
        }
        for (auto node = static_cast<int>(dictionary.node); node >= 0;
             node = plan_.nodes[static_cast<std::size_t>(node)].parent) {
            plan_.nodes[static_cast<std::size_t>(node)].leads_to_compacted_codes = true;
        }
    }
    return collects;
}

template <typename Selection>
void PackPlanner::partition_dictionaries(Table const& table, std::span<Selection const> blocks) {
    if (start_compaction(table)) {
        auto const visit = [this](auto node, auto const& column, auto const& rows) {
            if (plan_.nodes[node].values != 0 && plan_.nodes[node].leads_to_compacted_codes) {
                this->collect_codes(node, column, rows);
            }
            return plan_.nodes[node].leads_to_compacted_codes;
        };
        for (auto const& block : blocks) {
            for (std::size_t i = 0; i < plan_.columns.size(); ++i) {
                walk_(plan_.nodes, plan_.columns[i], table.columns()[i], block, visit);
            }
        }
    }
    finish_compaction(table);
}

template void PackPlanner::partition_dictionaries(Table const&, std::span<IndexSelection const>);
template void PackPlanner::partition_dictionaries(Table const&, std::span<RangeSelection const>);

template <typename Selection>
void PackPlanner::collect_codes(std::size_t node, Column const& column, Selection const& selection) {
    auto& dictionary = dictionary_of(node);
    with_code_type(plan_.nodes[node].field->width(), [&]<typename T>(T) {
        selection.for_each_run([&](std::size_t p, auto const& run) {
            auto at = dictionary.codes_at[p];
            run.for_each_row([&](std::int64_t row) {
                dictionary.codes[at++] =
                    column.is_valid(row)
                        ? static_cast<std::uint32_t>(load<T>(column.values, column.offset + row))
                        : null_code;
            });
            dictionary.codes_at[p] = at;
        });
    });
}

void PackPlanner::finish_compaction(Table const& table) {
    for (auto& dictionary : plan_.dictionaries) {
        auto const& values = column_of(dictionary.node, table).dictionary;
        if (dictionary.is_compacted) {
            compact_codes(dictionary, values);
        } else {
            DictionaryPlan::Values whole;
            whole.column = values;
            for (std::size_t p = 0; p < num_partitions_; ++p) {
                if (counted(dictionary.node, p).rows > 0) {
                    whole.list.begin_partition(p);
                    whole.list.push({0, values->length});
                }
            }
            dictionary.values.push_back(std::move(whole));
        }
        count_values(dictionary);
    }
}

// Gives each partition the values that occur in it, in the order of their first use.
void PackPlanner::compact_codes(DictionaryPlan& dictionary, std::shared_ptr<Column const> const& values) {
    DictionaryPlan::Values used;
    used.column = values;
    struct Seen {
        std::uint32_t partition{UINT32_MAX};  // the last one that the value occurred in
        std::uint32_t code{0};
    };
    std::vector<Seen> seen(static_cast<std::size_t>(values->length));
    std::size_t begin{0};
    for (std::size_t p = 0; p < num_partitions_; ++p) {
        auto const end = dictionary.codes_at[p];  // collecting has moved it there
        if (begin != end) {
            used.list.begin_partition(p);
        }
        std::uint32_t next{0};
        for (auto i = begin; i < end; ++i) {
            auto& code = dictionary.codes[i];
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
        dictionary.codes_at[p] = begin;
        begin = end;
    }
    dictionary.values.push_back(std::move(used));
}

void PackPlanner::unify_dictionaries(std::span<Table const* const> tables) {
    for (auto& dictionary : plan_.dictionaries) {
        std::vector<std::shared_ptr<Column const>> sources;
        for (auto const* const table : tables) {
            sources.push_back(column_of(dictionary.node, *table).dictionary);
        }
        unify(dictionary, sources);
        count_values(dictionary);
    }
}

void PackPlanner::unify(
    DictionaryPlan& dictionary, std::vector<std::shared_ptr<Column const>> const& sources) {
    auto const& field = *plan_.nodes[dictionary.node].field;
    auto const& values_field = *field.dictionary();
    auto const is_same = [&](auto const& source) { return same_values(values_field, *source, *sources[0]); };
    if (std::all_of(sources.begin(), sources.end(), is_same)) {
        DictionaryPlan::Values whole;
        whole.column = sources[0];
        whole.list.begin_partition(0);
        whole.list.push({0, sources[0]->length});
        dictionary.values.push_back(std::move(whole));
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
        dictionary.values.push_back(std::move(added));
        dictionary.renumbering.push_back(std::move(numbers));
    }
}

void PackPlanner::count_values(DictionaryPlan& dictionary) {
    for (auto& values : dictionary.values) {
        values.selection = values.list.finish(num_partitions_);
        count_all(plan_.nodes[dictionary.node].values, *values.column, values.selection);
    }
}

}  // namespace rapidsmpf::detail
