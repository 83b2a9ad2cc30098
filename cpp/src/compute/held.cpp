#include "compute/held.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <variant>

#include <cudf/table/table.hpp>

#include <rapidsmpf/memory/buffer.hpp>

#include "compute/string_codes.hpp"

namespace rapidsmpf::compute {

namespace {

Stream as_stream(cudaStream_t stream) {
    return Stream{stream};
}

HeldBytes hold(std::unique_ptr<rmm::device_buffer> buffer) {
    HeldBytes held;
    held.size = buffer ? buffer->size() : 0;
    held.device = std::move(buffer);
    return held;
}

HeldColumn hold(ColumnPtr column) {
    HeldColumn held;
    held.type = column->type();
    held.rows = column->size();
    held.nulls = column->null_count();
    auto contents = column->release();
    held.data = hold(std::move(contents.data));
    held.null_mask = hold(std::move(contents.null_mask));
    for (auto& child : contents.children) {
        held.children.push_back(hold(std::move(child)));
    }
    return held;
}

std::size_t sum_bytes(HeldColumn const& column) {
    auto sum = column.data.size + column.null_mask.size;
    for (auto const& child : column.children) {
        sum += sum_bytes(child);
    }
    return sum;
}

template <typename Do>
void for_each_buffer(HeldColumn& column, Do const& act) {
    act(column.data);
    act(column.null_mask);
    for (auto& child : column.children) {
        for_each_buffer(child, act);
    }
}

ColumnPtr assemble(HeldColumn& column, cuda::stream_ref stream) {
    std::vector<ColumnPtr> children;
    for (auto& child : column.children) {
        children.push_back(assemble(child, stream));
    }
    auto const buffer = [stream](HeldBytes& held) {
        if (!held.device) {
            return rmm::device_buffer{0, stream};
        }
        held.device->set_stream(stream);
        return std::move(*held.device);
    };
    auto data = buffer(column.data);
    auto null_mask = buffer(column.null_mask);
    return std::make_unique<cudf::column>(
        column.type, column.rows, std::move(data), std::move(null_mask), column.nulls, std::move(children));
}

cudf::column_view view_of(HeldColumn const& column) {
    std::vector<cudf::column_view> children;
    for (auto const& child : column.children) {
        children.push_back(view_of(child));
    }
    return cudf::column_view{
        column.type,
        column.rows,
        column.data.device ? column.data.device->data() : nullptr,
        column.null_mask.size == 0 ? nullptr
                                   : static_cast<cudf::bitmask_type const*>(column.null_mask.device->data()),
        column.nulls,
        0,
        children};
}

}  // namespace

HeldRows::HeldRows(Context& context) : context_{context} {
    holder_ = context_.memory().add_holder([this](std::size_t bytes) { return make_room(bytes); });
}

HeldRows::~HeldRows() {
    context_.memory().remove_holder(holder_);
}

void HeldRows::add(Chunk chunk, Work& work) {
    work.synchronize();
    auto slot = std::make_unique<Slot>();
    slot->sequence = chunk.sequence;
    slot->rows = chunk.rows->num_rows();
    slot->coding = std::move(chunk.coding);
    for (auto& column : chunk.rows->release()) {
        slot->columns.push_back(hold(std::move(column)));
        slot->bytes += sum_bytes(slot->columns.back());
    }
    MutexLock const lock{mutex_};
    rows_ += slot->rows;
    bytes_ += static_cast<std::int64_t>(slot->bytes);
    slots_.push_back(std::move(slot));
}

std::size_t HeldRows::size() const {
    MutexLock const lock{mutex_};
    return slots_.size();
}

std::int64_t HeldRows::rows() const {
    MutexLock const lock{mutex_};
    return rows_;
}

std::int64_t HeldRows::bytes() const {
    MutexLock const lock{mutex_};
    return bytes_;
}

std::int64_t HeldRows::rows_of(std::size_t index) const {
    MutexLock const lock{mutex_};
    return slots_.at(index)->rows;
}

std::int64_t HeldRows::bytes_of(std::size_t index) const {
    MutexLock const lock{mutex_};
    return static_cast<std::int64_t>(slots_.at(index)->bytes);
}

void HeldRows::put_in_order() {
    MutexLock const lock{mutex_};
    std::stable_sort(
        slots_.begin(), slots_.end(), [](auto const& a, auto const& b) { return a->sequence < b->sequence; });
}

HeldRows::Slot& HeldRows::begin(std::size_t index) {
    UniqueLock lock{mutex_};
    auto& slot = *slots_.at(index);
    freed_.wait(lock, [&slot] { return !slot.busy; });
    slot.busy = true;
    return slot;
}

void HeldRows::end(Slot& slot) noexcept {
    {
        MutexLock const lock{mutex_};
        slot.busy = false;
    }
    freed_.notify_all();
}

// The slot is busy.
void HeldRows::bring_back(Slot& slot, Work& work) {
    if (slot.on_device) {
        return;
    }
    auto& device = context_.resource().device();
    auto const stream = as_stream(work.stream().get());
    std::vector<std::shared_ptr<Buffer const>> pinned;
    try {
        for (auto& column : slot.columns) {
            for_each_buffer(column, [&](HeldBytes& bytes) {
                if (bytes.host) {
                    pinned.push_back(bytes.host->pin());
                    bytes.device = std::make_unique<rmm::device_buffer>(bytes.size, work.stream(), work.mr());
                    device.copy(bytes.device->data(), pinned.back()->data(), bytes.size, stream);
                }
            });
        }
        work.synchronize();
    } catch (...) {
        device.synchronize(stream);
        for (auto& column : slot.columns) {
            for_each_buffer(column, [](HeldBytes& bytes) {
                if (bytes.host) {
                    bytes.device.reset();
                }
            });
        }
        throw;
    }
    pinned.clear();
    for (auto& column : slot.columns) {
        for_each_buffer(column, [](HeldBytes& bytes) { bytes.host.reset(); });
    }
    MutexLock const lock{mutex_};
    slot.on_device = true;
}

Chunk HeldRows::take_coded(std::size_t index, Work& work) {
    auto& slot = begin(index);
    try {
        bring_back(slot, work);
    } catch (...) {
        end(slot);
        throw;
    }
    std::vector<ColumnPtr> columns;
    for (auto& column : slot.columns) {
        columns.push_back(assemble(column, work.stream()));
    }
    auto const rows = static_cast<cudf::size_type>(slot.rows);
    Chunk chunk{
        std::make_unique<cudf::table>(std::move(columns), rows), slot.sequence, std::move(slot.coding)};
    {
        MutexLock const lock{mutex_};
        slot.columns.clear();
        slot.bytes = 0;  // nothing to move any more
    }
    end(slot);
    return chunk;
}

TablePtr HeldRows::take(std::size_t index, Work& work) {
    auto chunk = take_coded(index, work);
    decode_all(chunk, work);
    return std::move(chunk.rows);
}

TablePtr HeldRows::copy(std::size_t index, std::int64_t begin_row, std::int64_t length, Work& work) {
    auto& slot = begin(index);
    try {
        bring_back(slot, work);
        std::vector<cudf::column_view> columns;
        for (auto const& column : slot.columns) {
            columns.push_back(view_of(column));
        }
        Chunk chunk{
            copy_rows(cudf::table_view{columns}, begin_row, length, work), slot.sequence, slot.coding};
        decode_all(chunk, work);
        work.synchronize();
        end(slot);
        return std::move(chunk.rows);
    } catch (...) {
        context_.resource().device().synchronize(as_stream(work.stream().get()));
        end(slot);
        throw;
    }
}

void HeldRows::drop(std::size_t index) {
    auto& slot = begin(index);
    std::vector<HeldColumn> columns;
    {
        MutexLock const lock{mutex_};
        columns.swap(slot.columns);
        slot.bytes = 0;
    }
    end(slot);
}

std::vector<TablePtr> HeldRows::take_all(Work& work) {
    std::vector<TablePtr> tables;
    auto const count = size();
    for (std::size_t i = 0; i < count; ++i) {
        tables.push_back(take(i, work));
    }
    return tables;
}

std::vector<Chunk> HeldRows::take_all_coded(Work& work) {
    std::vector<Chunk> chunks;
    auto const count = size();
    for (std::size_t i = 0; i < count; ++i) {
        chunks.push_back(take_coded(i, work));
    }
    return chunks;
}

std::size_t HeldRows::make_room(std::size_t bytes) {
    auto& resource = context_.resource();
    auto const stream = as_stream(context_.move_stream());
    static constexpr std::array targets{MemoryType::PINNED_HOST, MemoryType::HOST};
    std::size_t freed{0};
    while (freed < bytes) {
        Slot* slot{nullptr};
        {
            // What is read last goes first.
            MutexLock const lock{mutex_};
            auto const found = std::find_if(slots_.rbegin(), slots_.rend(), [](auto const& each) {
                return !each->busy && each->on_device && each->bytes > 0;
            });
            if (found == slots_.rend()) {
                return freed;
            }
            slot = found->get();
            slot->busy = true;
        }
        try {
            for (auto& column : slot->columns) {
                for_each_buffer(column, [&](HeldBytes& held) {
                    if (held.size == 0) {
                        return;
                    }
                    auto reservation = resource.reserve_best(held.size, targets);
                    auto buffer = resource.allocate(held.size, reservation, stream);
                    buffer->write([&](std::byte* to, Stream on) {
                        resource.device().copy(to, held.device->data(), held.size, on);
                    });
                    held.host = std::make_unique<SpillableBuffer>(std::move(buffer), 1);
                });
            }
            resource.device().synchronize(stream);
        } catch (...) {
            resource.device().synchronize(stream);
            for (auto& column : slot->columns) {
                for_each_buffer(column, [](HeldBytes& held) { held.host.reset(); });
            }
            end(*slot);
            return freed;  // there is no room elsewhere either; who needs memory says so
        }
        for (auto& column : slot->columns) {
            for_each_buffer(column, [&](HeldBytes& held) {
                if (held.host) {
                    held.device->set_stream(cuda::stream_ref{context_.move_stream()});
                    held.device.reset();
                }
            });
        }
        resource.device().synchronize(stream);
        freed += slot->bytes;
        {
            MutexLock const lock{mutex_};
            slot->on_device = false;
        }
        end(*slot);
    }
    return freed;
}

}  // namespace rapidsmpf::compute
