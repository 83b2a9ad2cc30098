// Key columns of long strings that are few: groups code them (string_codes.hpp). Those of up to seven bytes are packed (short_texts.hpp),
// and columns that a scan has coded stay as they are.
#pragma once

#include <cstddef>
#include <vector>

#include <rapidsmpf/core/mutex.hpp>

#include "compute/operators.hpp"
#include "compute/string_codes.hpp"

namespace rapidsmpf::compute {

// The codes of the keys of one group operator. Thread-safe.
class LongKeys {
  public:
    // Keys are the first columns of the chunks. `may_be_coded`: of each. Chunks of fewer than `least_rows` are left as they are.
    LongKeys(std::vector<bool> const& may_be_coded, std::size_t least_rows);

    // Codes the key columns of strings that are long and few. Waits for the stream if there are such columns.
    void code(Chunk& chunk, Work& work);

  private:
    struct Key {
        StringCodesPtr codes;
        bool is_coded{true};  // false: it must not be, or has too many values
    };

    [[nodiscard]] bool is_coded(std::size_t key);
    [[nodiscard]] StringCodesPtr codes_for(std::size_t key, Work& work);

    std::size_t const count_;
    std::size_t const least_rows_;
    Mutex mutex_;
    std::vector<Key> keys_ RAPIDSMPF_GUARDED_BY(mutex_);
};

}  // namespace rapidsmpf::compute
