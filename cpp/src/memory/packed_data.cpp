#include <rapidsmpf/memory/packed_data.hpp>

#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

PackedData::PackedData(std::vector<std::uint8_t> metadata_, std::unique_ptr<Buffer> data_)
    : metadata{std::move(metadata_)}, data{std::move(data_)} {
    RAPIDSMPF_EXPECTS(data != nullptr, "packed data needs a buffer", std::invalid_argument);
    RAPIDSMPF_EXPECTS(
        !metadata.empty() || data->size() == 0, "packed data with bytes needs metadata",
        std::invalid_argument);
}

}  // namespace rapidsmpf
