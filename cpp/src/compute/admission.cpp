#include "compute/admission.hpp"

#include <atomic>
#include <optional>
#include <utility>
#include <variant>

namespace rapidsmpf::compute {

namespace {

// Chunks of a source are much alike: the largest so far, and a little.
class Estimate {
  public:
    explicit Estimate(std::int64_t first_guess) : first_guess_{first_guess} {}
    [[nodiscard]] std::int64_t get() const noexcept {
        auto const seen = largest_.load(std::memory_order_relaxed);
        return seen == 0 ? first_guess_ : seen + seen / 8;
    }
    void note(std::int64_t bytes) noexcept {
        auto largest = largest_.load(std::memory_order_relaxed);
        while (largest < bytes
               && !largest_.compare_exchange_weak(largest, bytes, std::memory_order_relaxed)) {
        }
    }

  private:
    std::int64_t first_guess_;
    std::atomic<std::int64_t> largest_{0};
};

// The chunk that the thread is at.
struct OwnChunk {
    std::shared_ptr<Estimate> estimate;
    std::unique_ptr<ChunkMemory> memory;
};
thread_local OwnChunk own;

class AdmittedSource final : public ChunkSource {
  public:
    AdmittedSource(std::unique_ptr<ChunkSource> source, DeviceMemory& memory, std::int64_t first_guess)
        : source_{std::move(source)}, memory_{memory}, estimate_{std::make_shared<Estimate>(first_guess)} {}

    [[nodiscard]] std::optional<Chunk> next(Work& work) override {
        end_chunk();
        own.memory = std::make_unique<ChunkMemory>(memory_, estimate_->get());
        own.estimate = estimate_;
        return source_->next(work);
    }

    void close() noexcept override { source_->close(); }

  private:
    std::unique_ptr<ChunkSource> source_;
    DeviceMemory& memory_;
    std::shared_ptr<Estimate> estimate_;
};

}  // namespace

std::unique_ptr<ChunkSource> admit(
    std::unique_ptr<ChunkSource> source, DeviceMemory& memory, std::int64_t first_guess) {
    return std::make_unique<AdmittedSource>(std::move(source), memory, first_guess);
}

void end_chunk() noexcept {
    if (own.memory) {
        own.estimate->note(own.memory->peak());
        own.memory.reset();
        own.estimate.reset();
    }
}

}  // namespace rapidsmpf::compute
