#include <rapidsmpf/exchange/settings.hpp>

#include <stdexcept>
#include <string>
#include <utility>

#include <rapidsmpf/core/error.hpp>
#include <rapidsmpf/core/option_table.hpp>

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
    auto const bytes = [&](config::Key<config::OptionType::bytes> key) {
        return static_cast<std::size_t>(config::get_bytes(options, key));
    };
    settings.gather_limit = bytes("exchange_gather_limit");
    settings.frame_bytes = bytes("exchange_frame_bytes");
    settings.eager_bytes = bytes("exchange_eager_bytes");
    settings.announce_bytes = bytes("exchange_announce_bytes");
    settings.split_bytes = bytes("exchange_split_bytes");
    settings.receive_limit = bytes("exchange_receive_limit");
    settings.validate();
    return settings;
}

}  // namespace rapidsmpf::exchange
