#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/table/partition.hpp>

#include "concat_fixed.hpp"
#include "packed_format.hpp"
#include "packer.hpp"

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
    auto const whole = [](Table const& table, auto const& use) {
        detail::RowRange const range{0, table.num_rows()};
        std::size_t const end{1};
        use(detail::RangeSelection{&range, &end, 1});
    };
    detail::Packer packer{schema, 1};
    std::vector<Table const*> sources;
    for (auto const& table : tables) {
        whole(*table, [&](auto const& rows) { packer.count(*table, rows); });
        packer.finish_source(*table);
        sources.push_back(&*table);
    }
    packer.unify_dictionaries(sources);
    packer.allocate({}, br, allow);
    packer.write_dictionaries();
    for (std::size_t i = 0; i < tables.size(); ++i) {
        packer.start_source(i, *tables[i]);
        whole(*tables[i], [&](auto const& rows) { packer.write(*tables[i], rows); });
        tables[i].reset();
    }
    auto packed = std::make_shared<PackedData const>(std::move(packer.finish().front()));
    auto const parts = detail::split_packed_metadata(packed->metadata);
    return detail::unpack_as(std::move(schema), std::move(packed), parts, ValidateData::none);
}

void expect_same(Schema const& first, Schema const& other) {
    auto const text = difference(first, other);
    RAPIDSMPF_EXPECTS(
        text.empty(), "tables with different columns cannot be put together: " + text, std::invalid_argument);
}

}  // namespace

Table unpack_and_concat(
    std::vector<PackedData>&& parts, BufferResource& br, ValidateData validate, AllowOverbooking allow) {
    auto taken = std::exchange(parts, {});  // whatever happens, the caller's list is empty
    std::shared_ptr<Schema const> schema;
    std::vector<std::uint8_t> schema_bytes;  // of the first part; most others have the same
    // The parts with rows.
    std::vector<PackedData> packed;
    std::vector<Contents> contents;
    std::optional<detail::FixedConcat> fixed;
    packed.reserve(taken.size());
    contents.reserve(taken.size());
    for (auto& part : taken) {
        if (part.empty()) {
            continue;
        }
        Contents its{detail::split_packed_metadata(part.metadata), schema};
        auto const& bytes = its.metadata.schema;
        if (schema == nullptr
            || !std::equal(bytes.begin(), bytes.end(), schema_bytes.begin(), schema_bytes.end())) {
            its.schema = Schema::deserialize(bytes);
            fixed.reset();
            if (schema == nullptr) {
                schema = its.schema;
                schema_bytes.assign(bytes.begin(), bytes.end());
                if (detail::FixedConcat::takes(*schema)) {
                    fixed.emplace(schema);
                }
            }
            expect_same(*schema, *its.schema);
        }
        if (part.data->mem_type() == MemoryType::DISK) {
            part.data = br.move_to_host_access(std::move(part.data));
        }
        if (its.metadata.info.num_rows > 0) {
            if (fixed && !fixed->add(its.metadata, *part.data)) {
                fixed.reset();
            }
            // The metadata stays where it is when its vector is moved.
            packed.push_back(std::move(part));
            contents.push_back(std::move(its));
        } else {
            (void)detail::unpack_as(
                its.schema, std::make_shared<PackedData const>(std::move(part)), its.metadata, validate);
        }
    }
    RAPIDSMPF_EXPECTS(
        schema != nullptr, "cannot put together no parts: nothing says what columns there are",
        std::invalid_argument);
    taken.clear();
    if (fixed && packed.size() > 1) {
        return std::move(*fixed).finish(std::move(packed), br, allow);
    }
    std::vector<std::optional<Table>> tables;
    tables.reserve(packed.size());
    for (std::size_t i = 0; i < packed.size(); ++i) {
        tables.emplace_back(
            detail::unpack_as(
                contents[i].schema, std::make_shared<PackedData const>(std::move(packed[i])),
                contents[i].metadata, validate));
    }
    return concat_owned(std::move(schema), std::move(tables), br, allow);
}

Table concat(std::span<Table const> tables, BufferResource& br, AllowOverbooking allow) {
    RAPIDSMPF_EXPECTS(
        !tables.empty(), "cannot put together no tables: nothing says what columns there are",
        std::invalid_argument);
    std::vector<std::optional<Table>> with_rows;
    for (auto const& table : tables) {
        expect_same(*tables[0].schema(), *table.schema());
        if (table.num_rows() > 0) {
            with_rows.emplace_back(table);
        }
    }
    return concat_owned(tables[0].schema(), std::move(with_rows), br, allow);
}

}  // namespace rapidsmpf
