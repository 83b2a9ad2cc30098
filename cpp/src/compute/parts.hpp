// Rows partitioned by the hash of their keys, for what is too large at once: rows of one key are in one part.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <rapidsmpf/compute/detail/program.hpp>

#include "compute/held.hpp"
#include "compute/join_table.hpp"
#include "compute/operators.hpp"

namespace rapidsmpf::compute {

// Thread-safe, but for moves.
class RowParts {
  public:
    RowParts(Context& context, int count);

    void add(Chunk chunk, std::span<std::int32_t const> keys, Work& work);

    [[nodiscard]] int count() const noexcept { return static_cast<int>(parts_.size()); }
    [[nodiscard]] std::shared_ptr<HeldRows> const& part(int number) const {
        return parts_.at(static_cast<std::size_t>(number));
    }
    // Frees a part that will not be read.
    void drop(int number) { parts_.at(static_cast<std::size_t>(number)).reset(); }

  private:
    std::vector<std::shared_ptr<HeldRows>> parts_;
};

// Takes the rows that a probe of parts gets, partitioned as these are.
class PartsSink final : public ChunkSink {
  public:
    PartsSink(Context& context, int count, std::vector<std::int32_t> keys)
        : parts_{context, count}, keys_{std::move(keys)} {}

    void take(Chunk chunk, Work& work) override {
        if (chunk.rows->num_rows() > 0) {
            parts_.add(std::move(chunk), keys_, work);
        }
    }
    void finish(Work& /*work*/) override {}
    [[nodiscard]] RowParts& parts() noexcept { return parts_; }

  private:
    RowParts parts_;
    std::vector<std::int32_t> keys_;
};

// The build side of a join in parts, which are probed one after the other.
class JoinParts {
  public:
    // As JoinTable has it.
    JoinParts(
        RowParts rows, std::vector<DataType> types, std::vector<std::optional<std::int32_t>> places,
        std::vector<std::int32_t> keys, bool nulls_equal, JoinTable::Ways ways, std::string name);

    [[nodiscard]] int count() const noexcept { return rows_.count(); }
    [[nodiscard]] std::int64_t num_rows() const;
    [[nodiscard]] std::int64_t num_bytes() const;

    // The table of one part; its rows stay here for other probes.
    [[nodiscard]] std::shared_ptr<JoinTable const> build(int part, Work& work) const;

  private:
    RowParts rows_;
    std::vector<DataType> types_;
    std::vector<std::optional<std::int32_t>> places_;
    std::vector<std::int32_t> keys_;
    bool nulls_equal_;
    JoinTable::Ways ways_;
    std::string name_;
};

}  // namespace rapidsmpf::compute
