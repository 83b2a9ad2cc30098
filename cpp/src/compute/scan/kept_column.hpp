// A column that is kept, and columns on its memory that are given to readers.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <vector>

#include <cuda/stream>
#include <cuda_runtime_api.h>
#include <cudf/column/column.hpp>
#include <rmm/device_buffer.hpp>

#include <rapidsmpf/core/mutex.hpp>

#include "compute/device_memory.hpp"

namespace rapidsmpf::compute {

// Thread-safe.
class KeptColumn : public std::enable_shared_from_this<KeptColumn> {
  public:
    // The work on the column is done; its memory will be released on `stream`. `memory`: where a buffer of a reader takes what
    // it needs beyond what is kept. It lives longer than all of them.
    // `codes`: of a coded column.
    KeptColumn(
        std::unique_ptr<cudf::column> column, StringCodesPtr codes, cuda::stream_ref stream,
        DeviceMemory& memory);
    // Waits for the work of its readers.
    ~KeptColumn();
    KeptColumn(KeptColumn const&) = delete;
    KeptColumn& operator=(KeptColumn const&) = delete;

    // The same column, without memory of its own: what is put on `stream`, or on the stream that its buffers are moved to, may
    // read it until it is destroyed.
    [[nodiscard]] std::unique_ptr<cudf::column> lend(cuda::stream_ref stream) const;

    [[nodiscard]] StringCodesPtr const& codes() const noexcept { return codes_; }

  private:
    friend class LentMemory;
    struct Parts {
        cudf::data_type type{cudf::type_id::EMPTY};
        cudf::size_type rows{0};
        cudf::size_type nulls{0};
        std::unique_ptr<rmm::device_buffer> data;
        std::unique_ptr<rmm::device_buffer> null_mask;
        std::vector<Parts> children;
    };
    [[nodiscard]] static Parts parts_of(cudf::column& column);
    [[nodiscard]] std::unique_ptr<cudf::column> lend(Parts const& parts, cuda::stream_ref stream) const;
    [[nodiscard]] rmm::device_buffer lend(
        std::unique_ptr<rmm::device_buffer> const& bytes, cuda::stream_ref stream) const;
    // What has been put on the stream so far reads this column.
    void read_on(cudaStream_t stream) const noexcept;

    DeviceMemory& memory_;
    Parts parts_;
    StringCodesPtr codes_;
    mutable Mutex mutex_;
    mutable std::map<cudaStream_t, cudaEvent_t> reads_
        RAPIDSMPF_GUARDED_BY(mutex_);  // the last on each stream
};

}  // namespace rapidsmpf::compute
