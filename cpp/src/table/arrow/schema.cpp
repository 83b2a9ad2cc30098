#include <rapidsmpf/table/schema.hpp>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "table/arrow/type_limits.hpp"

namespace rapidsmpf {

namespace {

// The metadata that says what values are; other keys (pandas', the user's) do not keep rows apart.
Field::Metadata type_metadata(Field const& field) {
    Field::Metadata pairs;
    for (auto const& pair : field.metadata()) {
        if (pair.first.starts_with("_PL_") || pair.first.starts_with("ARROW:extension:")) {
            pairs.push_back(pair);
        }
    }
    std::sort(pairs.begin(), pairs.end());
    return pairs;
}

std::string field_difference(Field const& a, Field const& b, std::string const& path) {
    if (a.format() != b.format() || a.children().size() != b.children().size()
        || (a.dictionary() == nullptr) != (b.dictionary() == nullptr)) {
        return detail::column_name(path) + " is " + a.type_name() + " in one and " + b.type_name()
               + " in another";
    }
    if (type_metadata(a) != type_metadata(b)) {
        return detail::column_name(path) + " is " + a.type_name()
               + " in both but with different categories or extension types";
    }
    for (std::size_t i = 0; i < a.children().size(); ++i) {
        auto const& child = a.children()[i];
        if (a.layout() == Layout::structure && child.name() != b.children()[i].name()) {
            return detail::column_name(path) + " has the field '" + child.name() + "' in one and '"
                   + b.children()[i].name() + "' in another";
        }
        auto text = field_difference(child, b.children()[i], path + "." + child.name());
        if (!text.empty()) {
            return text;
        }
    }
    return a.dictionary() == nullptr ? "" : field_difference(*a.dictionary(), *b.dictionary(), path);
}

}  // namespace

Field::Field(
    std::string name, std::string format, std::int64_t flags, std::vector<Field> children,
    std::shared_ptr<Field const> dictionary, Metadata metadata)
    : name_{std::move(name)},
      format_{std::move(format)},
      flags_{flags},
      metadata_{std::move(metadata)},
      children_{std::move(children)},
      dictionary_{std::move(dictionary)} {
    classify();
}

bool Field::has_ordered_codes() const noexcept {
    return dictionary_ && (flags_ & ARROW_FLAG_DICTIONARY_ORDERED) != 0
           && std::none_of(metadata_.begin(), metadata_.end(), [](auto const& pair) {
                  return pair.first == "_PL_ENUM_VALUES2" || pair.first == "_PL_ENUM_VALUES";
              });
}

bool operator==(Field const& a, Field const& b) {
    return a.name_ == b.name_ && a.format_ == b.format_ && a.flags_ == b.flags_ && a.metadata_ == b.metadata_
           && a.children_ == b.children_ && (a.dictionary_ == nullptr) == (b.dictionary_ == nullptr)
           && (a.dictionary_ == nullptr || *a.dictionary_ == *b.dictionary_);
}

std::size_t Schema::index_of(std::string_view name) const {
    auto const found = std::find_if(
        fields_.begin(), fields_.end(), [&](Field const& field) { return field.name() == name; });
    if (found == fields_.end()) {
        std::string names;
        for (auto const& field : fields_) {
            names += (names.empty() ? "'" : ", '") + field.name() + "'";
        }
        throw std::invalid_argument{
            "there is no column '" + std::string{name}
            + "'; the columns are: " + (names.empty() ? "none" : names)};
    }
    return static_cast<std::size_t>(found - fields_.begin());
}

std::string difference(Schema const& a, Schema const& b) {
    if (a.num_columns() != b.num_columns()) {
        return "one has " + std::to_string(a.num_columns()) + " columns and another "
               + std::to_string(b.num_columns());
    }
    for (std::size_t i = 0; i < a.num_columns(); ++i) {
        auto const& field = a.fields()[i];
        if (field.name() != b.fields()[i].name()) {
            return "column number " + std::to_string(i) + " is '" + field.name() + "' in one and '"
                   + b.fields()[i].name() + "' in another";
        }
        auto text = field_difference(field, b.fields()[i], field.name());
        if (!text.empty()) {
            return text;
        }
    }
    return "";
}

}  // namespace rapidsmpf
