#pragma once
#include <memory>

#include "compute/scan/settings.hpp"

namespace rapidsmpf::compute {

// Files that are mapped and registered with CUDA; lives as long as an engine.
class MappedFiles {
  public:
    explicit MappedFiles(ScanSettings const& settings);
    ~MappedFiles();
    MappedFiles(MappedFiles const&) = delete;
    MappedFiles& operator=(MappedFiles const&) = delete;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace rapidsmpf::compute
