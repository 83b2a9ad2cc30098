// Parts of timestamps, calendars, and texts of times.
#include <array>
#include <stdexcept>
#include <utility>
#include <variant>

#include <cudf/datetime.hpp>
#include <cudf/strings/convert/convert_datetime.hpp>

#include "compute/functions.hpp"

namespace rapidsmpf::compute {

namespace {

using cudf::datetime::datetime_component;
using cudf::datetime::rounding_frequency;

constexpr std::array<std::pair<std::string_view, datetime_component>, 10> time_components{{
    {"year", datetime_component::YEAR},
    {"month", datetime_component::MONTH},
    {"day", datetime_component::DAY},
    {"weekday", datetime_component::WEEKDAY},
    {"hour", datetime_component::HOUR},
    {"minute", datetime_component::MINUTE},
    {"second", datetime_component::SECOND},
    {"millisecond", datetime_component::MILLISECOND},
    {"microsecond", datetime_component::MICROSECOND},
    {"nanosecond", datetime_component::NANOSECOND},
}};

constexpr std::array<std::pair<std::string_view, rounding_frequency>, 7> time_frequencies{{
    {"day", rounding_frequency::DAY},
    {"hour", rounding_frequency::HOUR},
    {"minute", rounding_frequency::MINUTE},
    {"second", rounding_frequency::SECOND},
    {"millisecond", rounding_frequency::MILLISECOND},
    {"microsecond", rounding_frequency::MICROSECOND},
    {"nanosecond", rounding_frequency::NANOSECOND},
}};

template <typename Values>
auto value_named(Values const& values, std::string const& name, char const* what) {
    for (auto const& [known, value] : values) {
        if (known == name) {
            return value;
        }
    }
    throw std::invalid_argument(std::string{"there is no "} + what + " '" + name + "'");
}

// A function of timestamps alone.
template <ColumnPtr (*function)(cudf::column_view const&, cuda::stream_ref, rmm::device_async_resource_ref)>
ColumnPtr calendar(Call& call) {
    return function(call.column(0), call.stream(), call.mr());
}

ColumnPtr component_of_time(Call& call) {
    auto const wanted = value_named(time_components, call.text(0), "part of a timestamp");
    return cudf::datetime::extract_datetime_component(call.column(0), wanted, call.stream(), call.mr());
}

ColumnPtr floor_times(Call& call) {
    auto const wanted = value_named(time_frequencies, call.text(0), "unit of time");
    return cudf::datetime::floor_datetimes(call.column(0), wanted, call.stream(), call.mr());
}

ColumnPtr add_months(Call& call) {
    auto const times = call.column(0);
    if (auto const* const months = call.constant(1)) {
        return cudf::datetime::add_calendrical_months(times, *months, call.stream(), call.mr());
    }
    return cudf::datetime::add_calendrical_months(times, call.column(1), call.stream(), call.mr());
}

ColumnPtr to_timestamps(Call& call) {
    return cudf::strings::to_timestamps(call.texts(0), call.type(), call.text(0), call.stream(), call.mr());
}

ColumnPtr is_timestamp(Call& call) {
    return cudf::strings::is_timestamp(call.texts(0), call.text(0), call.stream(), call.mr());
}

ColumnPtr from_timestamps(Call& call) {
    // Names of days and months, for formats that have them: none.
    cudf::strings_column_view const names{
        cudf::column_view{cudf::data_type{cudf::type_id::STRING}, 0, nullptr, nullptr, 0}};
    return cudf::strings::from_timestamps(call.column(0), call.text(0), names, call.stream(), call.mr());
}

constexpr Primitive time_table[]{
    {"str.to_timestamps", 1, "format", to_timestamps},
    {"str.is_timestamp", 1, "format", is_timestamp},
    {"str.from_timestamps", 1, "format", from_timestamps},
    {"dt.component", 1, "component", component_of_time},
    {"dt.day_of_year", 1, "", calendar<cudf::datetime::day_of_year>},
    {"dt.last_day_of_month", 1, "", calendar<cudf::datetime::last_day_of_month>},
    {"dt.is_leap_year", 1, "", calendar<cudf::datetime::is_leap_year>},
    {"dt.days_in_month", 1, "", calendar<cudf::datetime::days_in_month>},
    {"dt.quarter", 1, "", calendar<cudf::datetime::extract_quarter>},
    {"dt.add_months", 2, "", add_months},
    {"dt.floor", 1, "frequency", floor_times},
};

}  // namespace

std::span<Primitive const> time_primitives() {
    return time_table;
}

}  // namespace rapidsmpf::compute
