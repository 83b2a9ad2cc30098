#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/detail/prefetch.hpp>
#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/partition.hpp>
#include <rapidsmpf/table/table.hpp>

#include "table/gpu/device_table.hpp"
#include "table/host/concat_fixed.hpp"
#include "table/host/pack_writer.hpp"
#include "table/narrow/narrow_types.hpp"
#include "table/narrow/widen_rows.hpp"
#include "table/packed/packed_format.hpp"

namespace rapidsmpf {

namespace {

// What the metadata of a part says.
struct Contents {
    detail::PackedParts metadata;
    std::shared_ptr<Schema const> schema;
};

// Tables with rows that have the same columns. Each is dropped when its rows have been copied.
Table concat_owned(
    std::shared_ptr<Schema const> schema, std::vector<std::optional<Table>> tables, BufferResource& br,
    AllowOverbooking allow) {
    if (tables.empty()) {
        return Table::empty(std::move(schema));
    }
    if (tables.size() == 1) {
        return Table{std::move(schema), tables[0]->columns(), tables[0]->num_rows(), tables[0]->owner()};
    }
    std::vector<Table const*> sources;
    sources.reserve(tables.size());
    for (auto const& table : tables) {
        sources.push_back(&*table);
    }
    detail::PackWriter writer{detail::plan_concat(schema, sources), {}, br, allow};
    for (auto& table : tables) {
        detail::WholeTable const whole{*table};
        writer.write(*table, whole.blocks());
        table.reset();
    }
    auto packed = std::make_shared<PackedData const>(std::move(std::move(writer).finish().front()));
    auto const parts = detail::split_packed_metadata(packed->metadata);
    return detail::unpack_as(std::move(schema), std::move(packed), parts, ValidateData::none);
}

void expect_same(Schema const& first, Schema const& other) {
    auto const text = difference(first, other);
    RAPIDSMPF_EXPECTS(
        text.empty(), "tables with different columns cannot be concatenated: " + text, std::invalid_argument);
}

// The schemas of the parts that were seen, most of which have the same. Narrow ones differ in what their columns take.
class KnownSchemas {
  public:
    // The schema of a part. `common` is that of all once they are widened: the first part's sets it, and the others' must be the same.
    [[nodiscard]] std::shared_ptr<Schema const> find(
        detail::PackedParts const& part, std::shared_ptr<Schema const>& common) {
        auto const found = std::ranges::find_if(known_, [&](std::shared_ptr<Schema const> const& schema) {
            return schema->form() == part.info.form && std::ranges::equal(schema->serialized(), part.schema);
        });
        if (found != known_.end()) {
            return *found;
        }
        auto schema = Schema::deserialize(part.schema, part.info.form);
        auto wide = detail::wide_schema(schema);
        if (common == nullptr) {
            common = wide;
        }
        expect_same(*common, *wide);
        if (known_.size() < most_known) {
            known_.push_back(schema);
        }
        return schema;
    }

  private:
    static constexpr std::size_t most_known = 16;
    std::vector<std::shared_ptr<Schema const>> known_;
};

// Calls take(contents, part) for the parts with metadata. Returns the schema, which is that of all once they are widened; the
// first part's own stands for those that only differ where it does not matter.
template <typename Take>
std::shared_ptr<Schema const> for_each_part(std::vector<PackedData>& parts, Take const& take) {
    std::shared_ptr<Schema const> schema;
    KnownSchemas known;
    for (std::size_t i = 0; i < parts.size(); ++i) {
        auto& part = parts[i];
        // Many small parts cost a cache miss each.
        constexpr std::size_t ahead = 3;
        if (i + 2 * ahead < parts.size()) {
            prefetch_to_read(parts[i + 2 * ahead].data.get());
        }
        if (i + ahead < parts.size()) {
            auto const& metadata = parts[i + ahead].metadata;
            constexpr std::size_t line = 64;
            for (std::size_t at = 0; at < std::min(metadata.size(), 8 * line); at += line) {
                prefetch_to_read(metadata.data() + at);
            }
        }
        if (part.empty()) {
            continue;
        }
        Contents its{detail::split_packed_metadata(part.metadata), nullptr};
        its.schema = known.find(its.metadata, schema);
        take(std::move(its), part);
    }
    RAPIDSMPF_EXPECTS(
        schema != nullptr, "cannot concatenate no parts: their columns are unknown", std::invalid_argument);
    return schema;
}

// Whether the kernels that concatenate parts lack it: dictionaries have to be unified, and the buffer numbers of views
// changed.
bool is_for_host(Field const& field) {
    return field.dictionary() != nullptr || field.layout() == Layout::view;
}

bool has_some_for_host(Schema const& schema) {
    return std::ranges::any_of(
        schema.fields(), [](Field const& field) { return any_field_in(field, is_for_host); });
}

Table concat_on_host(
    std::vector<PackedData> taken, BufferResource& br, ValidateData validate, AllowOverbooking allow) {
    // The parts with rows.
    std::vector<PackedData> packed;
    std::vector<Contents> contents;
    packed.reserve(taken.size());
    contents.reserve(taken.size());
    // As long as all parts have one schema, and it is of fixed width.
    std::shared_ptr<Schema const> first;
    std::optional<detail::FixedConcat> fixed;
    auto schema = for_each_part(taken, [&](Contents its, PackedData& part) {
        if (first == nullptr) {
            first = its.schema;
            if (!first->is_narrow() && detail::FixedConcat::takes(*first)) {
                fixed.emplace(first);
            }
        } else if (its.schema != first) {
            fixed.reset();
        }
        if (!part.data->is_host_accessible()) {
            part.data = br.move_to_host_access(std::move(part.data));
        }
        if (its.metadata.info.num_rows > 0) {
            if (fixed && !fixed->add(its.metadata, part.data->host_bytes())) {
                fixed.reset();
            }
            // The metadata stays where it is when its vector is moved.
            packed.push_back(std::move(part));
            contents.push_back(std::move(its));
        } else {
            (void)detail::unpack_as(
                its.schema, std::make_shared<PackedData const>(std::move(part)), its.metadata, validate);
        }
    });
    taken.clear();
    if (fixed && packed.size() > 1) {
        return std::move(*fixed).finish(std::move(packed), br, allow);
    }
    std::vector<std::optional<Table>> tables;
    tables.reserve(packed.size());
    bool is_narrow = false;
    for (std::size_t i = 0; i < packed.size(); ++i) {
        is_narrow |= contents[i].schema->is_narrow();
        tables.emplace_back(
            detail::unpack_as(
                contents[i].schema, std::make_shared<PackedData const>(std::move(packed[i])),
                contents[i].metadata, validate));
    }
    if (is_narrow) {
        return detail::widen_and_concat(std::move(schema), std::move(tables), br, allow);
    }
    return concat_owned(std::move(schema), std::move(tables), br, allow);
}

// In device memory.
PackedData bring_to_device(PackedData part, BufferResource& br, AllowOverbooking allow) {
    if (part.data->mem_type() != MemoryType::DEVICE) {
        auto reservation = br.reserve_device_memory_and_spill(part.data->size(), allow);
        part.data = br.move(std::move(part.data), reservation);
    }
    return part;
}

// On the host, and then to the device.
Table concat_by_host(
    std::vector<PackedData> parts, BufferResource& br, AllowOverbooking allow, Stream stream) {
    auto const table = concat_on_host(std::move(parts), br, ValidateData::bounds, AllowOverbooking::yes);
    auto const packed = std::make_shared<PackedData const>(bring_to_device(pack(table, br), br, allow));
    packed->data->synchronize();  // before the host memory goes
    auto result = unpack(packed, ValidateData::none);
    return Table{result.schema(), result.columns(), result.num_rows(),
                 result.owner(),  result.place(),   stream};
}

// Parts that `stream` works with: behind what was written to them on their own streams, and before they are freed on those.
class PartsInUse {
  public:
    explicit PartsInUse(Device& device, Stream stream) : device_{device}, stream_{stream} {}
    ~PartsInUse() {
        try {
            auto const mark = others_.empty() ? nullptr : device_.make_event();
            if (mark) {
                mark->record(stream_);
            }
            for (auto const other : others_) {
                mark->wait(other);
            }
        } catch (...) {  // the GPU has failed; freeing memory reports it
        }
    }
    PartsInUse(PartsInUse const&) = delete;
    PartsInUse& operator=(PartsInUse const&) = delete;

    void add(std::shared_ptr<PackedData const> part) {
        wait_for(*part->data);
        parts_.push_back(std::move(part));
    }
    void add(std::vector<PackedData> parts) {
        for (auto const& part : parts) {
            wait_for(*part.data);
        }
        many_ = std::move(parts);
    }

  private:
    void wait_for(Buffer const& data) {
        auto const own = data.stream();
        if (own != stream_ && std::find(others_.begin(), others_.end(), own) == others_.end()) {
            others_.push_back(own);
        }
        data.wait_for_writes(stream_);
    }

    Device& device_;
    Stream stream_;
    std::vector<Stream> others_;
    std::vector<std::shared_ptr<PackedData const>> parts_;
    std::vector<PackedData> many_;
};

// A part with rows.
struct PartOfTable {
    PackedData data;
    detail::PackedParts metadata;  // stays where it is when the vector of its bytes is moved
};

// For tables of fixed width without nulls, of whose parts no tables are made; none, without a change, for others.
std::optional<Table> concat_fixed_on_gpu(
    std::shared_ptr<Schema const> const& schema, std::vector<PartOfTable>& parts, BufferResource& br,
    AllowOverbooking allow, Stream stream) {
    if (!detail::FixedConcat::takes(*schema)) {
        return std::nullopt;
    }
    detail::FixedConcat fixed{schema};
    for (auto const& [part, metadata] : parts) {
        if (!fixed.add(metadata, {part.data->data(), part.data->size()})) {
            return std::nullopt;
        }
    }
    std::vector<PackedData> taken;
    taken.reserve(parts.size());
    for (auto& [part, metadata] : parts) {
        taken.push_back(std::move(part));
    }
    PartsInUse in_use{br.device(), stream};
    in_use.add(std::move(taken));
    return std::move(fixed).finish_on_gpu(br, allow, stream);
}

Table concat_on_gpu(
    std::vector<PackedData> parts, BufferResource& br, AllowOverbooking allow, Stream stream) {
    struct WithRows {
        std::size_t part;
        detail::PackedParts metadata;
    };
    std::vector<WithRows> with_rows;
    with_rows.reserve(parts.size());
    bool is_narrow = false;
    auto const schema = for_each_part(parts, [&](Contents its, PackedData& part) {
        is_narrow |= its.schema->is_narrow();
        if (its.metadata.info.num_rows > 0) {
            with_rows.push_back({static_cast<std::size_t>(&part - parts.data()), its.metadata});
        }
    });
    if (with_rows.empty()) {
        return Table{schema, Table::empty(schema).columns(), 0, nullptr, TablePlace::gpu, stream};
    }
    if (is_narrow || (with_rows.size() > 1 && has_some_for_host(*schema))) {
        return concat_by_host(std::move(parts), br, allow, stream);
    }
    std::vector<PartOfTable> taken;
    taken.reserve(with_rows.size());
    for (auto const& [i, metadata] : with_rows) {
        taken.push_back({bring_to_device(std::move(parts[i]), br, allow), metadata});
    }
    if (taken.size() > 1) {
        if (auto table = concat_fixed_on_gpu(schema, taken, br, allow, stream)) {
            return std::move(*table);
        }
    }
    auto const in_use = std::make_shared<PartsInUse>(br.device(), stream);
    std::vector<Table> tables;
    tables.reserve(taken.size());
    for (auto& [part, metadata] : taken) {
        auto packed = std::make_shared<PackedData const>(std::move(part));
        tables.push_back(detail::unpack_as(schema, std::move(packed), metadata, ValidateData::none));
        // The part, or a copy of it that is aligned.
        in_use->add(std::static_pointer_cast<PackedData const>(tables.back().owner()));
    }
    if (tables.size() == 1) {
        auto const& only = tables.front();
        auto const owner =
            std::make_shared<std::pair<std::shared_ptr<void const>, std::shared_ptr<void const>>>(
                only.owner(), in_use);
        return Table{schema, only.columns(), only.num_rows(), owner, TablePlace::gpu, stream};
    }
    auto packed =
        std::make_shared<PackedData const>(detail::concat_packed_on_gpu(*schema, tables, br, allow, stream));
    tables.clear();
    auto const metadata = detail::split_packed_metadata(packed->metadata);
    return detail::unpack_as(schema, std::move(packed), metadata, ValidateData::none);
}

bool is_part_on_gpu(PackedData const& part) {
    return part.data != nullptr && detail::is_on_gpu(*part.data);
}

}  // namespace

Table unpack_and_concat(
    std::vector<PackedData>&& parts, BufferResource& br, ValidateData validate, AllowOverbooking allow) {
    auto taken = std::exchange(parts, {});  // whatever happens, the caller's list is empty
    auto const on_gpu = std::find_if(taken.begin(), taken.end(), is_part_on_gpu);
    if (on_gpu != taken.end()) {
        auto const stream = on_gpu->data->stream();
        return concat_on_gpu(std::move(taken), br, allow, stream);
    }
    return concat_on_host(std::move(taken), br, validate, allow);
}

Table unpack_and_concat_on_device(
    std::vector<PackedData>&& parts, BufferResource& br, Stream stream, AllowOverbooking allow) {
    auto taken = std::exchange(parts, {});
    if (br.device().kind() == DeviceKind::cpu) {
        return concat_on_host(std::move(taken), br, ValidateData::bounds, allow);
    }
    return concat_on_gpu(std::move(taken), br, allow, stream);
}

Table concat(std::span<Table const> tables, BufferResource& br, AllowOverbooking allow) {
    RAPIDSMPF_EXPECTS(
        !tables.empty(), "cannot concatenate no tables: their columns are unknown", std::invalid_argument);
    std::vector<std::optional<Table>> with_rows;
    for (auto const& table : tables) {
        expect_same(*tables[0].schema(), *table.schema());
        RAPIDSMPF_EXPECTS(
            table.place() == tables[0].place(),
            "tables in host memory and on a GPU cannot be concatenated: move them to one place first",
            std::invalid_argument);
        if (table.num_rows() > 0) {
            with_rows.emplace_back(table);
        }
    }
    if (tables[0].place() == TablePlace::gpu) {
        bool const by_host = has_some_for_host(*tables[0].schema());
        std::vector<PackedData> parts;
        for (auto const& table : tables) {
            parts.push_back(pack(by_host ? copy_to_host(table) : table, br));
        }
        return concat_on_gpu(std::move(parts), br, allow, tables[0].stream());
    }
    return concat_owned(tables[0].schema(), std::move(with_rows), br, allow);
}

}  // namespace rapidsmpf
