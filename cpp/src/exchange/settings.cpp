#include <rapidsmpf/exchange/settings.hpp>

#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>

namespace rapidsmpf::exchange {

void Settings::validate() const {
    auto const positive = [](std::size_t value, char const* name) {
        RAPIDSMPF_EXPECTS(value > 0, std::string{name} + " must be at least one byte", std::invalid_argument);
    };
    // gather_limit and eager_bytes may be zero: that turns gathering and unasked sending off.
    positive(frame_bytes, "exchange_frame_bytes");
    positive(announce_bytes, "exchange_announce_bytes");
    positive(split_bytes, "exchange_split_bytes");
    positive(receive_limit, "exchange_receive_limit");
}

Settings Settings::from_options(config::Options options) {
    Settings settings;
    auto const read = [&](char const* key, std::size_t& value) {
        auto const bytes = options.get<std::int64_t>(key, [&](std::string const& text) {
            return text.empty() ? static_cast<std::int64_t>(value) : config::parse_bytes(text);
        });
        RAPIDSMPF_EXPECTS(bytes >= 0, std::string{key} + " must not be negative", std::invalid_argument);
        value = static_cast<std::size_t>(bytes);
    };
    read("exchange_gather_limit", settings.gather_limit);
    read("exchange_frame_bytes", settings.frame_bytes);
    read("exchange_eager_bytes", settings.eager_bytes);
    read("exchange_announce_bytes", settings.announce_bytes);
    read("exchange_split_bytes", settings.split_bytes);
    read("exchange_receive_limit", settings.receive_limit);
    settings.validate();
    return settings;
}

}  // namespace rapidsmpf::exchange
