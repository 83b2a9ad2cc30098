#include "compute/long_keys.hpp"

#include <cstdint>
#include <utility>
#include <variant>  // libcudf's headers need it first

#include <cudf/strings/strings_column_view.hpp>

#include "compute/short_texts_kernels.hpp"
#include "compute/tables.hpp"

namespace rapidsmpf::compute {

namespace {

bool is_long(cudf::column_view const& column, Work& work) {
    if (column.type().id() != cudf::type_id::STRING) {
        return false;
    }
    auto const bytes = cudf::strings_column_view{column}.chars_size(work.stream());
    return bytes > kernels::most_bytes * std::int64_t{column.size()};
}

}  // namespace

LongKeys::LongKeys(std::vector<bool> const& may_be_coded, std::size_t least_rows)
    : count_{may_be_coded.size()}, least_rows_{least_rows} {
    MutexLock const lock{mutex_};
    for (auto const may_be : may_be_coded) {
        keys_.push_back({.codes = nullptr, .is_coded = may_be});
    }
}

bool LongKeys::is_coded(std::size_t key) {
    MutexLock const lock{mutex_};
    return keys_[key].is_coded;
}

StringCodesPtr LongKeys::codes_for(std::size_t key, Work& work) {
    {
        MutexLock const lock{mutex_};
        if (keys_[key].codes != nullptr) {
            return keys_[key].codes;
        }
    }
    // Without the lock, since it may wait for memory.
    auto made = std::make_shared<StringCodes>(StringCodes::most_strings, work);
    MutexLock const lock{mutex_};
    if (keys_[key].codes == nullptr) {
        keys_[key].codes = std::move(made);
    }
    return keys_[key].codes;
}

void LongKeys::code(Chunk& chunk, Work& work) {
    if (static_cast<std::size_t>(chunk.rows->num_rows()) < least_rows_) {
        return;
    }
    for (std::size_t key = 0; key < count_; ++key) {
        auto const column = chunk.rows->view().column(static_cast<cudf::size_type>(key));
        if (codes_of(chunk.coding, key) != nullptr || !is_coded(key) || !is_long(column, work)) {
            continue;
        }
        auto const codes = codes_for(key, work);
        if (auto coded = codes->code(column, work)) {
            replace_column(chunk, key, std::move(coded), codes);
        } else {
            MutexLock const lock{mutex_};
            keys_[key].is_coded = false;
        }
    }
}

}  // namespace rapidsmpf::compute
