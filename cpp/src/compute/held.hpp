// Rows that wait: in a sink for the end of its pipeline, and as its result for the pipelines that read them. While
// they are not in use they may be moved to host memory (and from there to disk, as the BufferResource decides), and are brought
// back when they are taken.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include <cudf/types.hpp>
#include <rmm/device_buffer.hpp>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/spillable_buffer.hpp>

#include "compute/context.hpp"
#include "compute/operators.hpp"
#include "compute/tables.hpp"

namespace rapidsmpf::compute {

// Bytes of a column, on the device or elsewhere.
struct HeldBytes {
    std::size_t size{0};
    std::unique_ptr<rmm::device_buffer> device;  // null: elsewhere
    std::unique_ptr<SpillableBuffer> host;
};

struct HeldColumn {
    cudf::data_type type{cudf::type_id::EMPTY};
    cudf::size_type rows{0};
    cudf::size_type nulls{0};
    HeldBytes data;
    HeldBytes null_mask;
    std::vector<HeldColumn> children;
};

// Tables in an order. Thread-safe, but for what says otherwise.
class HeldRows {
  public:
    explicit HeldRows(Context& context);
    ~HeldRows();
    HeldRows(HeldRows const&) = delete;
    HeldRows& operator=(HeldRows const&) = delete;

    // Waits for what is on the stream of `work`. Tables without rows are kept, too.
    void add(Chunk chunk, Work& work);

    [[nodiscard]] std::size_t size() const;  // tables
    [[nodiscard]] std::int64_t rows() const;
    [[nodiscard]] std::int64_t bytes() const;
    [[nodiscard]] std::int64_t rows_of(std::size_t index) const;
    [[nodiscard]] std::int64_t bytes_of(std::size_t index) const;

    // By the places of the chunks in their source; chunks of one place stay in the order in which they came. No other
    // thread may use the rows meanwhile.
    void put_in_order();

    // A table, which is gone from here, or a copy of some of its rows; on the stream of `work`. Coded columns are decoded.
    [[nodiscard]] TablePtr take(std::size_t index, Work& work);
    [[nodiscard]] TablePtr copy(std::size_t index, std::int64_t begin, std::int64_t length, Work& work);
    // The same as take(), with coded columns as they are.
    [[nodiscard]] Chunk take_coded(std::size_t index, Work& work);
    // Frees a table that will not be read.
    void drop(std::size_t index);
    // All tables that are left, in order.
    [[nodiscard]] std::vector<TablePtr> take_all(Work& work);
    [[nodiscard]] std::vector<Chunk> take_all_coded(Work& work);

  private:
    // What is written after add() is written with mutex_ held; columns by the thread that has made the slot busy.
    struct Slot {
        std::uint64_t sequence{0};
        std::int64_t rows{0};
        std::size_t bytes{0};
        std::vector<HeldColumn> columns;
        Coding coding;
        bool busy{false};  // a thread reads or moves it
        bool on_device{true};
    };

    std::size_t make_room(std::size_t bytes);
    // Waits until no other thread works on the slot, which is busy from then on.
    Slot& begin(std::size_t index);
    void end(Slot& slot) noexcept;
    void bring_back(Slot& slot, Work& work);

    Context& context_;
    std::uint64_t holder_{0};
    mutable Mutex mutex_;
    ConditionVariable freed_;
    std::vector<std::unique_ptr<Slot>> slots_ RAPIDSMPF_GUARDED_BY(mutex_);
    std::int64_t rows_ RAPIDSMPF_GUARDED_BY(mutex_){0};
    std::int64_t bytes_ RAPIDSMPF_GUARDED_BY(mutex_){0};
};

}  // namespace rapidsmpf::compute
