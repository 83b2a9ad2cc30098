#pragma once
#include <memory>

namespace rapidsmpf::compute {

// Footers of Parquet files, each parsed once; lives as long as an engine.
class FooterCache {
  public:
    FooterCache();
    ~FooterCache();
    FooterCache(FooterCache const&) = delete;
    FooterCache& operator=(FooterCache const&) = delete;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

}  // namespace rapidsmpf::compute
