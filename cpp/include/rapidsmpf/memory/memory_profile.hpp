// What named regions of a program allocate: the records of memory profiling.
//
// A region is a scope of an RmmResourceAdaptor, on the thread that opens it; regions nest. When it ends, what the
// adaptor measured is added to the record of the region's name. Statistics do not have it (they are of a room
// below): a report appends it to their text. Thread-safe.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include <rapidsmpf/core/mutex.hpp>
#include <rapidsmpf/memory/resource_adaptor.hpp>
#include <rapidsmpf/memory/scoped_memory_record.hpp>

namespace rapidsmpf {

class MemoryProfile {
  public:
    struct Record {
        // What the region's threads allocated in it, over all its calls; the peak is that of the highest call.
        ScopedMemoryRecord scoped;
        // The most that all threads together had in use while the region was open.
        std::int64_t global_peak{0};
        std::uint64_t num_calls{0};
    };
    using Records = std::map<std::string, Record>;

    void add(std::string_view name, ScopeMeasurement const& measured);
    [[nodiscard]] Records records() const;

    // A table for people, the highest peak first; with a header line.
    [[nodiscard]] std::string report() const;
    // `"memory_records": {name: {"num_calls":, "peak_bytes":, "total_bytes":, "global_peak_bytes":}}`, to be put into
    // the object of StatisticsSnapshot::to_json(); empty when there are none. Throws std::invalid_argument when a name
    // has a character that JSON would have to escape.
    [[nodiscard]] std::string json_member() const;

  private:
    mutable Mutex mutex_;
    Records records_ RAPIDSMPF_GUARDED_BY(mutex_);
};

// Profiles the block that it lives in. Both ends must be on one thread.
class MemoryProfileScope {
  public:
    // Does nothing when there is no profile or no adaptor.
    MemoryProfileScope(
        std::shared_ptr<MemoryProfile> profile, std::shared_ptr<RmmResourceAdaptor> mr, std::string name)
        : profile_{std::move(profile)}, mr_{profile_ ? std::move(mr) : nullptr}, name_{std::move(name)} {
        if (mr_) {
            mr_->begin_scoped_memory_record();
        }
    }
    ~MemoryProfileScope() {
        if (mr_) {
            profile_->add(name_, mr_->end_scope());
        }
    }
    MemoryProfileScope(MemoryProfileScope const&) = delete;
    MemoryProfileScope& operator=(MemoryProfileScope const&) = delete;

  private:
    std::shared_ptr<MemoryProfile> profile_;
    std::shared_ptr<RmmResourceAdaptor> mr_;
    std::string name_;
};

}  // namespace rapidsmpf
