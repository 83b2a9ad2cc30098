// Checking what the buffers of a packed table contain: they came off a wire or a disk.
#include <string>

#include <rapidsmpf/core/error.hpp>

#include "table/host/bits.hpp"
#include "table/host/column_access.hpp"
#include "table/packed/packed_format.hpp"

namespace rapidsmpf::detail {

namespace {

bool is_utf8(std::span<std::uint8_t const> bytes) noexcept {
    std::size_t i = 0;
    while (i < bytes.size()) {
        if (i + 8 <= bytes.size()) {
            std::uint64_t word;
            std::memcpy(&word, bytes.data() + i, 8);
            if ((word & 0x8080808080808080ULL) == 0) {
                i += 8;
                continue;
            }
        }
        auto const lead = bytes[i];
        if (lead < 0x80) {
            ++i;
            continue;
        }
        std::size_t const more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || i + more >= bytes.size()) {
            return false;
        }
        for (std::size_t k = 1; k <= more; ++k) {
            if ((bytes[i + k] & 0xC0) != 0x80) {
                return false;
            }
        }
        auto const second = bytes[i + 1];
        // No overlong forms, no surrogates, nothing beyond U+10FFFF.
        if ((lead == 0xE0 && second < 0xA0) || (lead == 0xED && second > 0x9F)
            || (lead == 0xF0 && second < 0x90) || (lead == 0xF4 && second > 0x8F)) {
            return false;
        }
        i += more + 1;
    }
    return true;
}

class Validator {
  public:
    explicit Validator(ValidateData validate) : full_{validate == ValidateData::full} {}

    void check(Field const& field, Column const& column, std::string const& path) const {
        auto const expect = [&path](bool condition, char const* message) {
            RAPIDSMPF_EXPECTS(
                condition, "malformed packed table: column '" + path + "': " + message, FormatError);
        };
        switch (field.layout()) {
            case Layout::offsets32:
                expect(
                    offsets_fit<std::int32_t>(column, static_cast<std::int64_t>(column.data.size())),
                    "text offsets lead out of the data");
                break;
            case Layout::offsets64:
                expect(
                    offsets_fit<std::int64_t>(column, static_cast<std::int64_t>(column.data.size())),
                    "text offsets lead out of the data");
                break;
            case Layout::list32:
                expect(
                    offsets_fit<std::int32_t>(column, column.children[0].length),
                    "list offsets lead out of the items");
                break;
            case Layout::list64:
                expect(
                    offsets_fit<std::int64_t>(column, column.children[0].length),
                    "list offsets lead out of the items");
                break;
            case Layout::view:
                expect(views_fit(column), "views lead out of the data");
                break;
            case Layout::fixed:
                expect(
                    field.dictionary() == nullptr || codes_fit(field, column),
                    "codes lead out of the dictionary");
                break;
            case Layout::null:
            case Layout::bits:
            case Layout::fixed_list:
            case Layout::structure:
                break;
        }
        if (full_) {
            expect(
                column.validity == nullptr
                    || column.length - count_bits(column.validity, column.offset, column.length)
                           == column.null_count,
                "the null count is wrong");
            expect(field.layout() != Layout::view || views_are_well_formed(column), "views are malformed");
            expect(!field.is_text() || is_text(field, column), "text is not UTF-8");
        }
        for (std::size_t i = 0; i < column.children.size(); ++i) {
            auto const& child = field.children()[i];
            check(child, column.children[i], path + "." + child.name());
        }
        if (column.dictionary) {
            check(*field.dictionary(), *column.dictionary, path);
        }
    }

  private:
    template <typename Offset>
    static bool offsets_fit(Column const& column, std::int64_t end) {
        if (column.length == 0) {
            return true;
        }
        bool ascending = load<Offset>(column.offsets, column.offset) >= 0;
        for (std::int64_t i = 0; i < column.length; ++i) {
            ascending &= load<Offset>(column.offsets, column.offset + i)
                         <= load<Offset>(column.offsets, column.offset + i + 1);
        }
        return ascending && load<Offset>(column.offsets, column.offset + column.length) <= end;
    }

    // Also of rows that are null: a reader may look at them before their validity.
    static bool views_fit(Column const& column) {
        bool fits = true;
        for (std::int64_t row = 0; row < column.length; ++row) {
            auto const view = load_view(column, row);
            if (view.size > View::max_inline) {
                fits &= view.buffer < column.variadic.size()
                        && std::uint64_t{view.offset} + view.size <= column.variadic[view.buffer].size();
            }
        }
        return fits;
    }

    static bool codes_fit(Field const& field, Column const& column) {
        auto const values = static_cast<std::uint64_t>(column.dictionary->length);
        bool fits = true;
        for (std::int64_t row = 0; row < column.length; ++row) {
            fits &= code_at(field, column, row) < values || !column.is_valid(row);
        }
        return fits;
    }

    static bool views_are_well_formed(Column const& column) {
        for (std::int64_t row = 0; row < column.length; ++row) {
            auto const view = load_view(column, row);
            if (view.size > View::max_inline) {
                if (load<std::uint32_t>(column.variadic[view.buffer].data() + view.offset, 0)
                    != view.prefix) {
                    return false;
                }
                continue;
            }
            auto const* const bytes = column.values + (column.offset + row) * 16 + 4;
            for (auto i = view.size; i < View::max_inline; ++i) {
                if (bytes[i] != std::byte{0}) {
                    return false;
                }
            }
        }
        return true;
    }

    static bool is_text(Field const& field, Column const& column) {
        for (std::int64_t row = 0; row < column.length; ++row) {
            if (column.is_valid(row) && !is_utf8(bytes_at(field.layout(), column, row))) {
                return false;
            }
        }
        return true;
    }

    bool full_;
};

}  // namespace

void validate_columns(Schema const& schema, std::vector<Column> const& columns, ValidateData validate) {
    if (validate == ValidateData::none) {
        return;
    }
    Validator const validator{validate};
    for (std::size_t i = 0; i < columns.size(); ++i) {
        validator.check(schema.fields()[i], columns[i], schema.fields()[i].name());
    }
}

}  // namespace rapidsmpf::detail
