// What the plugin's expressions share: the structures that Polars hands over, and how a failure is told.
//
// The structures are those of the Arrow C data interface, as its specification gives them, and of version 0.1 of Polars'
// plugin interface. The callee owns the ArrowArrays and SeriesExports that it is given, and releases them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

extern "C" {

struct ArrowSchema {
    char const* format;
    char const* name;
    char const* metadata;
    std::int64_t flags;
    std::int64_t n_children;
    ArrowSchema** children;
    ArrowSchema* dictionary;
    void (*release)(ArrowSchema*);
    void* private_data;
};

struct ArrowArray {
    std::int64_t length;
    std::int64_t null_count;
    std::int64_t offset;
    std::int64_t n_buffers;
    std::int64_t n_children;
    void const** buffers;
    ArrowArray** children;
    ArrowArray* dictionary;
    void (*release)(ArrowArray*);
    void* private_data;
};

// A column in chunks. Its `release` frees the field and the structures of the chunks, not what they hold: who reads it
// takes each chunk, and releases that. One without private data says that the call failed.
struct SeriesExport {
    ArrowSchema* field;
    ArrowArray** arrays;
    std::size_t n_arrays;
    void (*release)(SeriesExport*);
    void* private_data;
};

}  // extern "C"

namespace polars_plugin {

// Why the last call on this thread failed: Polars asks for it on the thread that saw the failure.
std::string& last_error();

}  // namespace polars_plugin
