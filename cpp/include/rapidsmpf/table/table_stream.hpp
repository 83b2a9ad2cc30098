// Streams of tables: reading an ArrowArrayStream, and exporting one.
//
// Does not take the GIL: a producer that needs it takes it itself.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <rapidsmpf/table/arrow_c.hpp>
#include <rapidsmpf/table/table.hpp>

namespace rapidsmpf {

// Pulls tables out of an ArrowArrayStream. Not thread-safe; next() blocks as long as the producer does.
class TableReader {
  public:
    // Asks for the schema at once. Throws std::invalid_argument for a stream that was released or is not of tables,
    // std::runtime_error with the producer's text when it fails.
    explicit TableReader(ArrowStreamOwner stream);

    [[nodiscard]] std::shared_ptr<Schema const> const& schema() const noexcept { return schema_; }
    // The next table, nothing at the end (and ever after). Throws std::runtime_error with the producer's text, and
    // again on each later call.
    [[nodiscard]] std::optional<Table> next();
    // Drops the producer now; next() says the end from then on.
    void close() noexcept;

  private:
    [[nodiscard]] std::string error_text(int code, char const* step);

    ArrowStreamOwner stream_;
    std::shared_ptr<Schema const> schema_;
    std::string error_;
};

// Makes `out` a stream of what `next` returns until it returns nothing. `next` runs in the consumer's thread, one
// call at a time; when it throws, the consumer gets an error code (ENOMEM for std::bad_alloc, else EIO) and the
// exception's text by get_last_error, and the same from then on. `next` is destroyed when the stream is released.
void export_table_stream(
    std::shared_ptr<Schema const> schema, std::function<std::optional<Table>()> next, ArrowArrayStream* out);

}  // namespace rapidsmpf
