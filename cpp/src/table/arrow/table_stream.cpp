#include <rapidsmpf/table/table_stream.hpp>

#include <cerrno>
#include <cstring>
#include <memory>
#include <new>
#include <stdexcept>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf {

TableReader::TableReader(ArrowStreamOwner stream) : stream_{std::move(stream)} {
    RAPIDSMPF_EXPECTS(
        static_cast<bool>(stream_), "the Arrow stream has been released or was consumed before",
        std::invalid_argument);
    ArrowSchemaOwner schema;
    if (int const code = stream_->get_schema(stream_.get(), schema.out()); code != 0) {
        throw std::runtime_error{error_text(code, "schema")};
    }
    schema_ = Schema::from_arrow(*schema.get());
}

std::optional<Table> TableReader::next() {
    if (!error_.empty()) {
        throw std::runtime_error{error_};
    }
    if (!stream_) {
        return std::nullopt;
    }
    ArrowArrayOwner array;
    if (int const code = stream_->get_next(stream_.get(), array.out()); code != 0) {
        error_ = error_text(code, "next batch");
        stream_.reset();
        throw std::runtime_error{error_};
    }
    if (!array) {
        stream_.reset();
        return std::nullopt;
    }
    return Table::import_arrow(schema_, array.get());
}

void TableReader::close() noexcept {
    stream_.reset();
}

std::string TableReader::error_text(int code, char const* step) {
    auto const* const text = stream_->get_last_error(stream_.get());
    return text != nullptr && *text != '\0'
               ? text
               : std::string{"the Arrow stream failed to give its "} + step + ": " + std::strerror(code);
}

namespace {

// What an exported ArrowArrayStream owns.
struct ExportedStream {
    std::shared_ptr<Schema const> schema;
    std::function<std::optional<Table>()> next;
    bool has_ended{false};
    int error_code{0};
    std::string error;

    // Runs `step`; an exception becomes the stream's error.
    template <typename Step>
    int guarded(Step const& step) noexcept {
        if (error_code != 0) {
            return error_code;
        }
        try {
            step();
            return 0;
        } catch (std::bad_alloc const& exception) {
            fail(ENOMEM, exception.what());
        } catch (std::exception const& exception) {
            fail(EIO, exception.what());
        } catch (...) {
            fail(EIO, "unknown error");
        }
        return error_code;
    }

    void fail(int code, char const* text) noexcept {
        error_code = code;
        try {
            error = text;
        } catch (...) {
            error.clear();  // no memory for the text: the code has to do
        }
    }
};

ExportedStream& content(ArrowArrayStream* stream) {
    return *static_cast<ExportedStream*>(stream->private_data);
}

}  // namespace

void export_table_stream(
    std::shared_ptr<Schema const> schema, std::function<std::optional<Table>()> next, ArrowArrayStream* out) {
    RAPIDSMPF_EXPECTS(
        schema != nullptr && next, "a stream needs a schema and a source", std::invalid_argument);
    auto owned = std::make_unique<ExportedStream>();
    owned->schema = std::move(schema);
    owned->next = std::move(next);
    *out = ArrowArrayStream{};
    out->get_schema = [](ArrowArrayStream* stream, ArrowSchema* schema_out) {
        auto const& self = content(stream);
        try {
            self.schema->to_arrow(schema_out);
            return 0;
        } catch (...) {
            return ENOMEM;  // nothing else can go wrong
        }
    };
    out->get_next = [](ArrowArrayStream* stream, ArrowArray* array) {
        auto& self = content(stream);
        *array = ArrowArray{};
        return self.guarded([&] {
            if (self.has_ended) {
                return;
            }
            auto table = self.next();
            if (!table) {
                self.has_ended = true;
                self.next = nullptr;  // what the source holds is of no more use
                return;
            }
            table->export_array(array);
        });
    };
    out->get_last_error = [](ArrowArrayStream* stream) -> char const* {
        auto const& self = content(stream);
        return self.error.empty() ? nullptr : self.error.c_str();
    };
    out->release = [](ArrowArrayStream* stream) {
        std::unique_ptr<ExportedStream> const owned{static_cast<ExportedStream*>(stream->private_data)};
        stream->private_data = nullptr;
        stream->release = nullptr;
    };
    out->private_data = owned.release();
}

}  // namespace rapidsmpf
