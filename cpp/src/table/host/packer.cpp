#include "table/host/packer.hpp"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>

#include "table/packed/packed_format.hpp"
#include "table/packed/packed_layout.hpp"
#include "table/packed/slab.hpp"

namespace rapidsmpf::detail {

namespace {

// Packed tables of this size or more are not expected to be found in a cache by who reads them.
constexpr std::size_t streaming_threshold = std::size_t{1} << 16U;

// The bytes that a piece's three buffers take, each a multiple of the alignment.
struct PieceSizes {
    std::size_t validity{0};
    std::size_t values{0};
    std::size_t data{0};

    [[nodiscard]] std::size_t total() const noexcept { return validity + values + data; }
};

PieceSizes piece_sizes(Field const& field, bool is_nullable, Piece const& piece) {
    PieceSizes sizes;
    if (is_nullable) {
        sizes.validity = padded_size(bytes_for_bits(piece.rows));
    }
    sizes.values = padded_size(values_bytes(field, piece.rows));
    sizes.data = padded_size(piece.bytes);
    return sizes;
}

// Gives a buffer its place. The padding is zeroed: it travels, and must not carry what lay there before.
std::byte* place(std::byte*& at, std::size_t size) {
    if (size == 0) {
        return nullptr;
    }
    auto* const placed = at;
    at += size;
    std::memset(at - piece_alignment, 0, piece_alignment);
    return placed;
}

}  // namespace

Packer::Packer(std::shared_ptr<Schema const> schema, std::size_t num_partitions, std::int64_t max_segment)
    : schema_{std::move(schema)}, num_partitions_{num_partitions}, max_segment_{max_segment} {
    columns_.reserve(schema_->num_columns());
    nodes_.reserve(schema_->num_columns());
    for (std::size_t i = 0; i < schema_->num_columns(); ++i) {
        columns_.push_back(add_node(schema_->fields()[i], -1, i));
    }
    pieces_.resize(nodes_.size() * num_partitions_);
    rows_.resize(num_partitions_, 0);
}

std::size_t Packer::add_node(Field const& field, int parent, std::size_t position) {
    auto const index = nodes_.size();
    nodes_.push_back(Node{});
    nodes_[index].field = &field;
    nodes_[index].parent = parent;
    nodes_[index].position = position;
    for (std::size_t i = 0; i < field.children().size(); ++i) {
        auto const child = add_node(field.children()[i], static_cast<int>(index), i);
        nodes_[index].children.push_back(child);
    }
    if (field.dictionary() != nullptr) {
        auto const values = add_node(*field.dictionary(), static_cast<int>(index), 0);
        nodes_[index].values = values;
        dictionaries_.push_back(DictionaryPlan{});
        dictionaries_.back().node = index;
    }
    return index;
}

Column const& Packer::column_of(std::size_t node, Table const& table) const {
    auto const& entry = nodes_[node];
    return entry.parent < 0
               ? table.columns()[entry.position]
               : column_of(static_cast<std::size_t>(entry.parent), table).children[entry.position];
}

template <typename Selection>
void Packer::count_rows(Table const& table, Selection const& selection) {
    selection.for_each_run([&](std::size_t p, auto const& run) { rows_[p] += run.num_rows(); });
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        walk(
            columns_[i], table.columns()[i], selection, 0,
            [this](auto node, auto const& column, auto const& rows) {
                this->count_node(node, column, rows);
                return true;
            });
    }
}

template <typename Selection>
void Packer::count_node(std::size_t index, Column const& column, Selection const& selection) {
    auto& node = nodes_[index];
    node.is_nullable |= column.validity != nullptr;
    if (has_only_rows(node)) {
        return;  // as many as the table: finish_source()
    }
    auto* const pieces = this->pieces(index);
    auto const count = [&](auto const& count_bytes) {
        selection.for_each_run([&](std::size_t p, auto const& run) {
            pieces[p].rows += run.num_rows();
            pieces[p].pending += count_bytes(run);
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

void Packer::finish_source(Table const& table) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        finish_source_node(columns_[i], table.columns()[i]);
    }
}

bool Packer::has_only_rows(Node const& node) {
    auto const layout = node.field->layout();
    return node.parent < 0 && (layout == Layout::fixed || layout == Layout::bits || layout == Layout::null);
}

void Packer::finish_source_node(std::size_t index, Column const& column) {
    auto& node = nodes_[index];
    auto const layout = node.field->layout();
    if (has_only_rows(node)) {
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            pieces(index)[p].rows = rows_[p];
        }
    } else if (layout == Layout::view) {
        std::int64_t total{0};
        bool can_move = !column.variadic.empty();
        for (auto const& buffer : column.variadic) {
            total += static_cast<std::int64_t>(buffer.size());
            can_move &= static_cast<std::int64_t>(buffer.size()) <= max_segment_;
        }
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            auto& piece = pieces(index)[p];
            // Views may share texts: then all buffers together are shorter than the texts one by one.
            auto const moves = can_move && piece.pending > 0 && piece.pending >= total;
            node.moves_buffers.push_back(moves ? 1 : 0);
            piece.bytes += moves ? total : piece.pending;
            piece.pending = 0;
        }
    } else if (layout == Layout::offsets32 || layout == Layout::offsets64) {
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            auto& piece = pieces(index)[p];
            piece.bytes += std::exchange(piece.pending, 0);
        }
    }
    for (std::size_t i = 0; i < node.children.size(); ++i) {
        finish_source_node(node.children[i], column.children[i]);
    }
}

void Packer::check_lengths(Node const& node, std::size_t partition) {
    auto const layout = node.field->layout();
    auto const index = static_cast<std::size_t>(&node - nodes_.data());
    auto const too_long =
        (layout == Layout::offsets32 && pieces(index)[partition].bytes > INT32_MAX)
        || (layout == Layout::list32 && pieces(node.children[0])[partition].rows > INT32_MAX);
    RAPIDSMPF_EXPECTS(
        !too_long,
        "column '" + node.field->name() + "' of type " + node.field->type_name()
            + " would have more than 2^31 items in one piece, beyond its 32-bit offsets; cast it to "
              "large_utf8, large_binary, large_list or a view type first, or cut the table into smaller pieces",
        std::invalid_argument);
}

void Packer::allocate(std::span<std::uint32_t const> placement, BufferResource& br, AllowOverbooking allow) {
    std::vector<std::size_t> sizes(num_partitions_, 0);
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            check_lengths(nodes_[n], p);
            sizes[p] += piece_sizes(*nodes_[n].field, nodes_[n].is_nullable, pieces(n)[p]).total();
        }
    }
    buffers_ = allocate_parts(sizes, placement, br, allow);
    if (std::accumulate(sizes.begin(), sizes.end(), std::size_t{0}) >= streaming_threshold) {
        stores_ = Stores::streaming;
    }
    std::vector<std::byte*> at;
    at.reserve(buffers_.size());
    for (auto const& buffer : buffers_) {
        at.push_back(buffer->mutable_host_bytes().data());
    }
    for (std::size_t n = 0; n < nodes_.size(); ++n) {
        auto const layout = nodes_[n].field->layout();
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            auto& piece = pieces(n)[p];
            auto const taken = piece_sizes(*nodes_[n].field, nodes_[n].is_nullable, piece);
            piece.validity = place(at[p], taken.validity);
            piece.values = place(at[p], taken.values);
            piece.data = place(at[p], taken.data);
            if (piece.values == nullptr) {
                continue;
            }
            if (layout == Layout::offsets32 || layout == Layout::list32) {
                store<std::int32_t>(piece.values, 0, 0);
            } else if (layout == Layout::offsets64 || layout == Layout::list64) {
                store<std::int64_t>(piece.values, 0, 0);
            }
        }
    }
}

void Packer::start_source(std::size_t source, Table const& table) {
    source_ = source;
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        start_source_node(columns_[i], table.columns()[i]);
    }
}

void Packer::start_source_node(std::size_t index, Column const& column) {
    auto& node = nodes_[index];
    if (node.field->layout() == Layout::view) {
        node.moved.assign(num_partitions_, {});
        for (std::size_t p = 0; p < num_partitions_; ++p) {
            if (node.moves_buffers[source_ * num_partitions_ + p] != 0) {
                node.moved[p] = append_buffers(pieces(index)[p], column, max_segment_);
            }
        }
    }
    for (std::size_t i = 0; i < node.children.size(); ++i) {
        start_source_node(node.children[i], column.children[i]);
    }
}

template <typename Selection>
void Packer::write_rows(Table const& table, Selection const& selection) {
    for (std::size_t i = 0; i < columns_.size(); ++i) {
        walk(
            columns_[i], table.columns()[i], selection, 0,
            [this](auto node, auto const& column, auto const& rows) {
                this->write_node(node, column, rows);
                return true;
            });
    }
}

template <typename Selection>
void Packer::write_node(std::size_t index, Column const& column, Selection const& selection) {
    auto& node = nodes_[index];
    if (node.field->layout() == Layout::null) {
        return;
    }
    if constexpr (std::is_same_v<Selection, IndexSelection>) {
        if (stores_ == Stores::streaming && num_partitions_ >= fewest_prefetched
            && node.field->layout() == Layout::fixed) {
            auto const width = node.field->width();
            device::prefetch(
                column.values + (column.offset + selection.base) * width,
                static_cast<std::size_t>(selection.num_rows() * width));
        }
    }
    auto* const pieces = this->pieces(index);
    selection.for_each_run([&](std::size_t p, auto const& run) {
        auto& piece = pieces[p];
        if (node.is_nullable) {
            append_validity(piece, column, run);
        }
        if (node.values != 0) {
            append_codes(index, p, piece, column, run);
        } else {
            append_values(node, p, piece, column, run);
        }
        piece.row += run.num_rows();
    });
}

template <typename Run>
void Packer::append_values(
    Node& node, std::size_t partition, Piece& piece, Column const& column, Run const& run) {
    switch (node.field->layout()) {
        case Layout::bits:
            append_bits(piece, column, run);
            break;
        case Layout::fixed:
            append_fixed_width(piece, column, run, node.field->width(), stores_);
            break;
        case Layout::offsets32:
            append_offsets<std::int32_t>(piece, column, run, true);
            break;
        case Layout::offsets64:
            append_offsets<std::int64_t>(piece, column, run, true);
            break;
        case Layout::list32:
            append_offsets<std::int32_t>(piece, column, run, false);
            break;
        case Layout::list64:
            append_offsets<std::int64_t>(piece, column, run, false);
            break;
        case Layout::view:
            if (node.moved[partition].empty()) {
                append_views(piece, column, run, max_segment_);
            } else {
                append_moved_views(piece, column, run, node.moved[partition]);
            }
            break;
        case Layout::null:
        case Layout::fixed_list:
        case Layout::structure:
            break;
    }
}

void Packer::count(Table const& table, IndexSelection const& selection) {
    count_rows(table, selection);
}

void Packer::count(Table const& table, RangeSelection const& selection) {
    count_rows(table, selection);
}

void Packer::write(Table const& table, IndexSelection const& selection) {
    write_rows(table, selection);
}

void Packer::write(Table const& table, RangeSelection const& selection) {
    write_rows(table, selection);
}

void Packer::write_dictionaries() {
    for (auto& plan : dictionaries_) {
        auto const node = nodes_[plan.node].values;
        for (std::size_t source = 0; source < plan.values.size(); ++source) {
            auto const& values = plan.values[source];
            source_ = source;
            start_source_node(node, *values.column);
            walk(
                node, *values.column, values.selection, 0,
                [this](auto n, auto const& column, auto const& rows) {
                    this->write_node(n, column, rows);
                    return true;
                });
        }
    }
}

template <typename Run>
void Packer::append_codes(
    std::size_t node, std::size_t partition, Piece& piece, Column const& column, Run const& run) {
    auto& plan = plan_of(node);
    auto const width = nodes_[node].field->width();
    if (plan.is_compacted) {
        auto& at = plan.codes_at[partition];
        auto const* const codes = plan.codes.data() + at;
        auto const count = run.num_rows();
        at += static_cast<std::size_t>(count);
        with_code_type(width, [&]<typename T>(T) {
            for (std::int64_t k = 0; k < count; ++k) {
                store(piece.values, piece.row + k, static_cast<T>(codes[k]));
            }
        });
        return;
    }
    if (plan.renumbering.empty() || plan.renumbering[source_].empty()) {
        append_fixed_width(piece, column, run, width, stores_);
        return;
    }
    with_code_type(
        width, [&]<typename T>(T) { append_renumbered<T>(piece, column, run, plan.renumbering[source_]); });
}

std::vector<PackedData> Packer::finish() {
    if (stores_ == Stores::streaming) {
        device::finish_streaming();
    }
    auto const beginning = PackedMetadataWriter::beginning(schema_->serialized());
    std::vector<PackedData> packed;
    packed.reserve(num_partitions_);
    for (std::size_t p = 0; p < num_partitions_; ++p) {
        auto const* const base = buffers_[p]->data();
        PackedMetadataWriter metadata{beginning, rows_[p], buffers_[p]->size(), nodes_.size()};
        for (std::size_t n = 0; n < nodes_.size(); ++n) {
            auto& piece = pieces(n)[p];
            auto const& field = *nodes_[n].field;
            auto const ref = [base](std::byte const* at, std::int64_t bytes) {
                return bytes == 0
                           ? PieceRef{}
                           : PieceRef{
                                 static_cast<std::uint64_t>(at - base), static_cast<std::uint64_t>(bytes)};
            };
            PackedNode node;
            node.length = piece.rows;
            node.null_count = field.layout() == Layout::null ? piece.rows : piece.nulls;
            node.validity = ref(piece.validity, piece.nulls == 0 ? 0 : bytes_for_bits(piece.rows));
            node.values = ref(piece.values, values_bytes(field, piece.rows));
            node.data = ref(piece.data, piece.bytes);
            if (field.layout() == Layout::view) {
                if (piece.byte > piece.segment_begin) {
                    piece.segment_ends.push_back(piece.byte);
                }
                std::int64_t begin{0};
                for (auto const end : piece.segment_ends) {
                    node.variadic.push_back(end - begin);
                    begin = end;
                }
            }
            metadata.node(field.layout(), node);
        }
        packed.emplace_back(metadata.finish(), std::move(buffers_[p]));
    }
    return packed;
}

}  // namespace rapidsmpf::detail
