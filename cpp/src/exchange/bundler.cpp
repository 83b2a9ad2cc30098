#include "exchange/bundler.hpp"

#include <algorithm>
#include <iterator>
#include <limits>

namespace rapidsmpf::exchange {

Bundler::Bundler(Operation::Plan const& plan, std::shared_ptr<BufferResource> br, Rank rank, Rank nranks)
    : plan_{plan}, br_{std::move(br)}, rank_{rank}, nranks_{static_cast<std::size_t>(nranks)} {}

BundleLimits Bundler::limits() const {
    auto const& settings = plan_.settings;
    // A list of chunks gives each 32 bits.
    constexpr std::size_t most = std::numeric_limits<std::uint32_t>::max();
    auto const whole = std::min({settings.bundle_bytes, settings.frame_bytes, most});
    // Where memory is short here it may be there, too, and each chunk of a bundle would be copied out of it.
    auto const joined = keeps_bundles(*br_, MemoryType::DEVICE) ? whole / 2 : 0;
    return {std::min(settings.gather_limit, whole), joined, whole};
}

bool Bundler::any_go_together(Chunks const& chunks, BundleLimits const& limits) const {
    std::vector<bool> has_one(nranks_, false);
    return std::any_of(chunks.begin(), chunks.end(), [&](auto const& one) {
        auto const& [partition, chunk] = one;
        if (chunk.empty() || !can_be_bundled(chunk, limits)) {
            return false;
        }
        auto const owner = static_cast<std::size_t>(plan_.owner(partition));
        bool const had_one = has_one[owner];
        has_one[owner] = true;
        return had_one;
    });
}

std::vector<Bundler::OwnedBundle> Bundler::bundle(Chunks& chunks) const {
    std::vector<OwnedBundle> bundles;
    auto const limits = this->limits();
    if (plan_.settings.gather_limit == 0 || !any_go_together(chunks, limits)) {
        return bundles;
    }
    std::vector<Chunks> small(nranks_);
    Chunks rest;
    bool const keeps_own = keeps_bundles(*br_, MemoryType::DEVICE);
    for (auto& [partition, chunk] : chunks) {
        auto const owner = plan_.owner(partition);
        bool const fits = !chunk.empty() && can_be_bundled(chunk, limits) && (owner != rank_ || keeps_own);
        (fits ? small[static_cast<std::size_t>(owner)] : rest).emplace_back(partition, std::move(chunk));
    }
    for (Rank owner = 0; owner < static_cast<Rank>(nranks_); ++owner) {
        auto& left = small[static_cast<std::size_t>(owner)];
        for (auto& content : make_bundles(left, *br_, limits)) {
            bundles.push_back({owner, std::move(content)});
        }
        std::move(left.begin(), left.end(), std::back_inserter(rest));
    }
    chunks = std::move(rest);
    return bundles;
}

}  // namespace rapidsmpf::exchange
