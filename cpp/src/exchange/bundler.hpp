// Puts small chunks of one insert() together that are for the same rank.
//
// Threading: any thread.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include <rapidsmpf/exchange/detail/operation.hpp>
#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/memory/packed_data.hpp>

#include "exchange/bundle.hpp"

namespace rapidsmpf::exchange {

class Bundler {
  public:
    using Chunks = std::vector<std::pair<PartitionId, PackedData>>;
    // Chunks that have no sequence numbers yet.
    struct OwnedBundle {
        Rank owner;
        NewBundle content;
    };

    // The plan must outlive it.
    Bundler(Operation::Plan const& plan, std::shared_ptr<BufferResource> br, Rank rank, Rank nranks);

    // Takes out of `chunks` those that go with others to the same rank.
    [[nodiscard]] std::vector<OwnedBundle> bundle(Chunks& chunks) const;

  private:
    [[nodiscard]] BundleLimits limits() const;
    // Whether two of the chunks may be part of one bundle.
    [[nodiscard]] bool any_go_together(Chunks const& chunks, BundleLimits const& limits) const;

    Operation::Plan const& plan_;
    std::shared_ptr<BufferResource> br_;
    Rank rank_;
    std::size_t nranks_;
};

}  // namespace rapidsmpf::exchange
