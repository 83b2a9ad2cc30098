// Narrow rows: tables whose columns take as few bytes as their values need, for rows that wait on disk or travel far.
//
// Integers, dates, times and decimals are held in the fewest of 1, 2, 4 and 8 bytes that all their values fit, and
// string views as texts one behind the other with an offset for each. The schema of such a table says what each column was
// (Schema::is_narrow()); it is packed and partitioned like any other. unpack() and unpack_and_concat() give the rows with
// their own types. A row of TPC-H's lineitem takes 91 bytes in place of 214.
#pragma once

#include <span>

#include <rapidsmpf/memory/buffer_resource.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf {

// The rows of some tables of one schema, in host memory, as one table that is narrow; one that is not, as concat() makes it, if
// that would save less than an eighth. Tables on a GPU stay as they are. Memory comes from `br` and may overbook it. Throws as
// concat(). Thread-safe.
[[nodiscard]] Table narrow(std::span<Table const> tables, BufferResource& br);

}  // namespace rapidsmpf
