// What runs a program's pipelines is made of: chunks, sources, steps, sinks, and what a thread has while it works.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include <cuda/stream>
#include <cudf/column/column.hpp>
#include <cudf/table/table.hpp>
#include <cudf/table/table_view.hpp>
#include <cudf/utilities/default_stream.hpp>
#include <cudf/utilities/memory_resource.hpp>

#include <rapidsmpf/compute/detail/program.hpp>

namespace rapidsmpf::compute {

class StringCodes;  // string_codes.hpp: the strings of coded columns
using StringCodesPtr = std::shared_ptr<StringCodes>;
// By column of a chunk, the strings of its codes; null, or missing at the end: the column is not coded.
using Coding = std::vector<StringCodesPtr>;

class Context;  // context.hpp: lives as long as an engine: memory, threads, mapped files, footers

// What one thread has while it runs a pipeline: a stream of its own, and where it takes memory.
class Work {
  public:
    Work(Context& context, cudaStream_t stream) : context_{&context}, stream_{stream} {}
    // For tests of what asks for no context.
    explicit Work(cudaStream_t stream) : stream_{stream} {}
    [[nodiscard]] Context& context() const noexcept { return *context_; }
    [[nodiscard]] cuda::stream_ref stream() const noexcept { return stream_; }
    [[nodiscard]] rmm::device_async_resource_ref mr() const {
        return cudf::get_current_device_resource_ref();
    }
    // Waits until all that was put on the stream is done.
    void synchronize() const;

  private:
    Context* context_{nullptr};
    cuda::stream_ref stream_;
};

// Rows on their way through a pipeline, ordered on the stream of the thread that holds them. Who hands a chunk to another
// thread synchronizes first.
struct Chunk {
    std::unique_ptr<cudf::table> rows;
    std::uint64_t sequence{0};  // its place in the source
    Coding coding{};
};

// Where a pipeline's chunks come from.
class ChunkSource {
  public:
    virtual ~ChunkSource() = default;
    // Starts to read before next() is called; at most once. Calls `when_read`, in any thread, when nothing is left to read.
    // Does not call it after an error or after close().
    virtual void start(std::function<void()> /*when_read*/) {}
    // The next chunk, on the stream of `work`; nothing at the end. Called by several threads at a time.
    [[nodiscard]] virtual std::optional<Chunk> next(Work& work) = 0;
    // The same for a thread that works ahead of the pipeline: nothing where a chunk would need memory that others may want first.
    [[nodiscard]] virtual std::optional<Chunk> next_ahead(Work& /*work*/) { return std::nullopt; }
    // The estimated bytes of its largest chunk, before any is read; 0: unknown.
    [[nodiscard]] virtual std::int64_t most_bytes() const { return 0; }
    // No more is wanted; what is being read ahead is given up. Called once, when no thread is in next().
    virtual void close() noexcept {}
};

// A step without state of its own.
class ChunkStep {
  public:
    virtual ~ChunkStep() = default;
    [[nodiscard]] virtual Chunk apply(Chunk chunk, Work& work) const = 0;
};

// Where a pipeline ends. The plan is the program's; the state is the sink's, one for all threads.
class ChunkSink {
  public:
    virtual ~ChunkSink() = default;
    // Whether take() accepts chunks with coded columns. For other sinks they are decoded before.
    [[nodiscard]] virtual bool takes_coded() const { return false; }
    // Called by several threads at a time, each with chunks on its own stream.
    virtual void take(Chunk chunk, Work& work) = 0;
    // Once, after all take() have returned.
    virtual void finish(Work& work) = 0;
    // Whether more rows cannot change the result, so that the source may end.
    [[nodiscard]] virtual bool has_enough() const { return false; }
};

}  // namespace rapidsmpf::compute
