// Sends tables in groups, as batches of a size that is worth a message.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include <rapidsmpf/streaming/channel.hpp>
#include <rapidsmpf/streaming/table_batch.hpp>

namespace rapidsmpf::streaming {

// For a thread that may block. `sequence` gives the numbers of the messages.
class GroupSender {
  public:
    GroupSender(ChannelPtr out, BatchSizes const& sizes, std::atomic<std::uint64_t>& sequence)
        : out_{std::move(out)}, sizes_{sizes}, sequence_{sequence} {}

    // Whether the consumer wants more.
    [[nodiscard]] bool add(Table table) {
        rows_ += table.num_rows();
        bytes_ += table.byte_size();
        group_.push_back(std::move(table));
        return (rows_ < sizes_.enough_rows && bytes_ < sizes_.enough_bytes) || flush();
    }
    bool flush() {
        if (group_.empty()) {
            return true;
        }
        rows_ = 0;
        bytes_ = 0;
        return out_->send_blocking(Message{sequence_.fetch_add(1), TableBatch{std::exchange(group_, {})}});
    }

  private:
    ChannelPtr out_;
    BatchSizes sizes_;
    std::atomic<std::uint64_t>& sequence_;
    std::vector<Table> group_;
    std::int64_t rows_{0};
    std::size_t bytes_{0};
};

}  // namespace rapidsmpf::streaming
