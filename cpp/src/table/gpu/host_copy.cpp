#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <rapidsmpf/device/detail/host_memory.hpp>
#include <rapidsmpf/device/device.hpp>
#include <rapidsmpf/table/table.hpp>

#include "table/host/bits.hpp"

namespace rapidsmpf {

namespace {

// The memory of a copy.
class HostBlocks {
  public:
    HostBlocks() = default;
    ~HostBlocks() {
        for (auto const& block : blocks_) {
            device::deallocate_host(block.data(), block.size());
        }
    }
    HostBlocks(HostBlocks const&) = delete;
    HostBlocks& operator=(HostBlocks const&) = delete;

    [[nodiscard]] std::byte* allocate(std::size_t bytes) {
        blocks_.reserve(blocks_.size() + 1);
        auto* const data = static_cast<std::byte*>(device::allocate_host(bytes));
        blocks_.emplace_back(data, bytes);
        return data;
    }

  private:
    std::vector<std::span<std::byte>> blocks_;
};

class Copier {
  public:
    Copier(HostBlocks& blocks, Stream stream) : blocks_{blocks}, stream_{stream} {}

    // Rows before `offset` are copied, too: they are in the same buffers.
    [[nodiscard]] Column copy(Field const& field, Column const& column) {
        auto copied = column;
        auto const end = static_cast<std::size_t>(column.offset + column.length);
        auto const bits = (end + 7) / 8;
        take(copied.validity, bits);
        switch (field.layout()) {
            case Layout::bits:
                take(copied.values, bits);
                break;
            case Layout::fixed:
                take(copied.values, end * static_cast<std::size_t>(field.width()));
                break;
            case Layout::view:
                take(copied.values, end * 16);
                break;
            case Layout::list32:
                (void)take_offsets<std::int32_t>(copied, end);
                break;
            case Layout::list64:
                (void)take_offsets<std::int64_t>(copied, end);
                break;
            case Layout::offsets32:
                copied.data = take(std::span{column.data.data(), take_offsets<std::int32_t>(copied, end)});
                break;
            case Layout::offsets64:
                copied.data = take(std::span{column.data.data(), take_offsets<std::int64_t>(copied, end)});
                break;
            default:
                break;
        }
        for (auto& part : copied.variadic) {
            part = take(part);
        }
        for (std::size_t i = 0; i < column.children.size(); ++i) {
            copied.children[i] = copy(field.children()[i], column.children[i]);
        }
        if (column.dictionary) {
            copied.dictionary = std::make_shared<Column const>(copy(*field.dictionary(), *column.dictionary));
        }
        return copied;
    }

  private:
    [[nodiscard]] std::span<std::byte const> take(std::span<std::byte const> bytes) {
        if (bytes.empty()) {
            return {};
        }
        auto* const to = blocks_.allocate(bytes.size());
        Device::current().copy(to, bytes.data(), bytes.size(), stream_);
        return {to, bytes.size()};
    }
    // Returns the last of them: on a GPU a text's column does not know how many bytes it has.
    template <typename Offset>
    [[nodiscard]] std::size_t take_offsets(Column& column, std::size_t end) {
        if (column.length == 0 || column.offsets == nullptr) {
            return 0;
        }
        take(column.offsets, (end + 1) * sizeof(Offset));
        Device::current().synchronize(stream_);
        return static_cast<std::size_t>(static_cast<Offset const*>(column.offsets)[end]);
    }
    template <typename T>
    void take(T const*& pointer, std::size_t bytes) {
        if (pointer != nullptr) {
            auto const* const from = reinterpret_cast<std::byte const*>(pointer);
            pointer = reinterpret_cast<T const*>(take(std::span{from, bytes}).data());
        }
    }

    HostBlocks& blocks_;
    Stream stream_;
};

// Counts the nulls that the GPU has not counted.
void count_nulls(Column& column) {
    if (column.null_count < 0) {
        column.null_count =
            column.validity == nullptr
                ? 0
                : column.length - detail::count_bits(column.validity, column.offset, column.length);
    }
    for (auto& child : column.children) {
        count_nulls(child);
    }
    if (column.dictionary) {
        auto values = *column.dictionary;
        count_nulls(values);
        column.dictionary = std::make_shared<Column const>(std::move(values));
    }
}

}  // namespace

Table copy_to_host(Table const& table) {
    if (table.place() == TablePlace::host) {
        return table;
    }
    auto const blocks = std::make_shared<HostBlocks>();
    Copier copier{*blocks, table.stream()};
    std::vector<Column> columns;
    for (std::size_t i = 0; i < table.num_columns(); ++i) {
        columns.push_back(copier.copy(table.schema()->fields()[i], table.columns()[i]));
    }
    Device::current().synchronize(table.stream());
    for (auto& column : columns) {
        count_nulls(column);
    }
    return Table{table.schema(), std::move(columns), table.num_rows(), blocks};
}

}  // namespace rapidsmpf
